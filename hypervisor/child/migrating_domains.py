"""Domains under migration, as either host sees them. In the child process only."""

from __future__ import annotations

import contextlib
import time
from typing import Final

import libvirt
import libvirt_qemu

from hypervisor.child.move_hosts import MoveHosts
from hypervisor.errors import OperationFailedError
from hypervisor.move_model import MoveSpec
from hypervisor.xml import domain as domain_xml

_PAUSED: Final = frozenset(
    {
        libvirt.VIR_DOMAIN_PAUSED_MIGRATION,
        libvirt.VIR_DOMAIN_PAUSED_POSTCOPY,
        libvirt.VIR_DOMAIN_PAUSED_POSTCOPY_FAILED,
    }
)
_MOVES: Final = frozenset(
    {libvirt.VIR_DOMAIN_JOB_OPERATION_MIGRATION_IN, libvirt.VIR_DOMAIN_JOB_OPERATION_MIGRATION_OUT}
)

#: Time after which an abort may have hit the race described in `abort_move`.
_HANGS_S: Final = 1.0
_GO_ON: Final = '{"execute": "migrate-continue", "arguments": {"state": "cancelling"}}'


def abort_move(domain: libvirt.virDomain, since: float) -> None:
    """Abort a move away from this host; ``since`` is the time of its first abort.

    The move may have ended by itself, so errors of libvirt are ignored.

    Notes
    -----
    QEMU waits for a command before it hands the guest over. If the cancel comes just before that
    wait, QEMU waits for ever with the guest paused (``migration_maybe_pause`` in
    migration/migration.c of QEMU 7.2). `migrate-continue` from the state "cancelling" ends the
    wait, and QEMU sees the cancel. In any other state QEMU refuses the command, so it completes no
    move.
    """
    with contextlib.suppress(libvirt.libvirtError):
        domain.abortJob()
    if time.monotonic() - since > _HANGS_S:
        with contextlib.suppress(libvirt.libvirtError):
            libvirt_qemu.qemuMonitorCommand(domain, _GO_ON, 0)


def is_paused_by_move(domain: libvirt.virDomain) -> bool:
    """Return whether a move keeps this domain paused, on the source or on the destination."""
    state, reason = domain.state()
    if state != libvirt.VIR_DOMAIN_PAUSED:
        return False
    # An arriving domain is not persistent until it runs; a domain started here is.
    arrives = reason == libvirt.VIR_DOMAIN_PAUSED_STARTING_UP and not domain.isPersistent()
    return reason in _PAUSED or arrives


def withdraw_move(hosts: MoveHosts, spec: MoveSpec) -> bool:
    """Undo a move whose guest has not arrived, and resume the guest at the source.

    Returns whether the guest runs only at the source. If not, the caller has to check both hosts.

    Notes
    -----
    The destination's QEMU may wait for ever for a connection, and its libvirt with it. Only
    destroying that QEMU ends the wait; it never ran the guest. A guest that arrived completely is
    persistent there, and stays.
    """
    there = _find_domain(hosts.destination.for_queries, spec)
    if there is not None:
        if domain_xml.parse_domain(there.XMLDesc(0)).mark != spec.mark:
            return False
        if not is_paused_by_move(there) or there.isPersistent():
            return False
        with contextlib.suppress(libvirt.libvirtError):  # its QEMU ended by itself
            there.destroy()
        if _find_domain(hosts.destination.for_queries, spec) is not None:
            return False
    here = _find_domain(hosts.source.for_queries, spec)
    if here is None:
        return False
    if is_paused_by_move(here):
        here.resume()
    return bool(here.state()[0] == libvirt.VIR_DOMAIN_RUNNING)


def refuse_if_moving(operation: str, domain: libvirt.virDomain) -> None:
    """Raise if a domain is moving: libvirt would delay the operation and then lose it.

    A call just before a move begins still waits.
    """
    if domain.isActive() and _is_moving(domain):
        raise OperationFailedError(
            operation,
            f"a move of domain {domain.UUIDString()} is under way",
            libvirt.VIR_ERR_RESOURCE_BUSY,
        )


def _is_moving(domain: libvirt.virDomain) -> bool:
    """Return whether a domain is under migration, on the source or on the destination."""
    if not domain.isPersistent() and is_paused_by_move(domain):
        return True
    try:
        job = domain.jobStats()
    except libvirt.libvirtError:  # the move is over, or this is the test driver
        return False
    under_way = job.get("type", libvirt.VIR_DOMAIN_JOB_NONE) != libvirt.VIR_DOMAIN_JOB_NONE
    return under_way and job.get("operation") in _MOVES


def _find_domain(conn: libvirt.virConnect, spec: MoveSpec) -> libvirt.virDomain | None:
    """Return the domain of a moving VM on one host, or None."""
    try:
        return conn.lookupByUUIDString(spec.vm_id)
    except libvirt.libvirtError as error:
        if error.get_error_code() == libvirt.VIR_ERR_NO_DOMAIN:
            return None
        raise
