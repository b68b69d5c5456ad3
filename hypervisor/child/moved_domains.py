"""Domains that a move holds, as either host sees them. In the child process only."""

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

#: An abort that has not ended a move by then may have met the moment described in `abort`.
_HANGS_S: Final = 1.0
_GO_ON: Final = '{"execute": "migrate-continue", "arguments": {"state": "cancelling"}}'


def abort(domain: libvirt.virDomain, since: float) -> None:
    """Ask once more for the end of a move away from here, which is being aborted ``since`` then.

    It may have ended by itself: errors of libvirt are ignored.

    Notes
    -----
    QEMU waits for a word before it lets a guest go over. Cancelled in the moment before it waits,
    it waits for ever, the guest paused and the move neither going on nor over
    (``migration_maybe_pause`` in migration/migration.c of QEMU 7.2). It is resumed, as from
    "cancelling": then it sees that it was cancelled. In any other state it refuses that, so no
    move is carried through by it.
    """
    with contextlib.suppress(libvirt.libvirtError):
        domain.abortJob()
    if time.monotonic() - since > _HANGS_S:
        with contextlib.suppress(libvirt.libvirtError):
            libvirt_qemu.qemuMonitorCommand(domain, _GO_ON, 0)


def is_paused_by_move(domain: libvirt.virDomain) -> bool:
    """Return whether a move holds a domain that does not run, at either end."""
    state, reason = domain.state()
    if state != libvirt.VIR_DOMAIN_PAUSED:
        return False
    # What arrives is defined once it runs; what is started here is defined before.
    arrives = reason == libvirt.VIR_DOMAIN_PAUSED_STARTING_UP and not domain.isPersistent()
    return reason in _PAUSED or arrives


def withdraw(hosts: MoveHosts, spec: MoveSpec) -> bool:
    """Leave a guest that has not arrived at the source alone, and let it run there.

    Returns whether it runs there alone. Where it does not, who called has both hosts looked at.

    Notes
    -----
    The destination's QEMU may wait for a stranger for as long as that one likes, and its libvirt
    with it: only the end of that QEMU ends the wait. It never ran the guest. One that arrived
    whole is defined there, and stays.
    """
    there = _find_domain(hosts.destination.for_queries, spec)
    if there is not None:
        if domain_xml.parse(there.XMLDesc(0)).mark != spec.mark:
            return False
        if not is_paused_by_move(there) or there.isPersistent():
            return False
        with contextlib.suppress(libvirt.libvirtError):  # its QEMU ended, and it with it
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
    """Refuse what libvirt would have wait for the end of a move, and then lose.

    A call in the moment before a move begins waits.
    """
    if domain.isActive() and _is_moving(domain):
        raise OperationFailedError(
            operation,
            f"a move of domain {domain.UUIDString()} is under way",
            libvirt.VIR_ERR_RESOURCE_BUSY,
        )


def _is_moving(domain: libvirt.virDomain) -> bool:
    if not domain.isPersistent() and is_paused_by_move(domain):
        return True
    try:
        job = domain.jobStats()
    except libvirt.libvirtError:  # it is over, or this is the test driver
        return False
    under_way = job.get("type", libvirt.VIR_DOMAIN_JOB_NONE) != libvirt.VIR_DOMAIN_JOB_NONE
    return under_way and job.get("operation") in _MOVES


def _find_domain(conn: libvirt.virConnect, spec: MoveSpec) -> libvirt.virDomain | None:
    try:
        return conn.lookupByUUIDString(spec.vm_id)
    except libvirt.libvirtError as error:
        if error.get_error_code() == libvirt.VIR_ERR_NO_DOMAIN:
            return None
        raise
