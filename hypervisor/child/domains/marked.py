"""Domains on a host, looked up by UUID, and fuga's marks in them. In the child process only."""

from __future__ import annotations

import libvirt

from hypervisor.errors import OperationFailedError
from hypervisor.model import DomainSpec, Mark
from hypervisor.xml import domain as domain_xml


def look_up_domain(conn: libvirt.virConnect, vm_id: str) -> libvirt.virDomain | None:
    """Return the domain of a VM, whatever its mark; None if there is none."""
    try:
        return conn.lookupByUUIDString(vm_id)
    except libvirt.libvirtError as error:
        if error.get_error_code() == libvirt.VIR_ERR_NO_DOMAIN:
            return None
        raise


def require_domain(conn: libvirt.virConnect, op: str, vm_id: str) -> libvirt.virDomain:
    """Return the domain of a VM; raise if there is none."""
    domain = look_up_domain(conn, vm_id)
    if domain is None:
        raise OperationFailedError(op, f"no domain {vm_id}", libvirt.VIR_ERR_NO_DOMAIN)
    return domain


def domain_in_run(conn: libvirt.virConnect, vm_id: str, run: int) -> libvirt.virDomain | None:
    """Return the domain if it is still in the given run; None if it is off or was restarted."""
    domain = look_up_domain(conn, vm_id)
    return domain if domain is not None and domain.ID() == run else None


def mark_of(domain: libvirt.virDomain) -> Mark | None:
    """Return fuga's mark of a domain, or None."""
    return domain_xml.parse_domain(domain.XMLDesc(0)).mark


def belongs_to_attempt(domain: libvirt.virDomain, mark: Mark | None) -> bool:
    """Return whether a domain belongs to the attempt of a mark; True without a mark."""
    if mark is None:
        return True
    seen = mark_of(domain)
    return seen is not None and (seen.assignment_id, seen.generation) == (
        mark.assignment_id,
        mark.generation,
    )


def has_domain_of_attempt(conn: libvirt.virConnect, vm_id: str, assignment_id: str) -> bool:
    """Return whether a VM has a domain of this assignment, or one without a mark."""
    domain = look_up_domain(conn, vm_id)
    if domain is None:
        return False
    mark = mark_of(domain)
    return mark is None or mark.assignment_id == assignment_id


def check_same_mark(wanted: DomainSpec, seen: Mark | None) -> None:
    """Raise if the domain to define exists with another mark, or without one."""
    if seen is None:
        raise OperationFailedError(
            "define", f"domain {wanted.mark.vm_id} exists without fuga's mark"
        )
    if (seen.assignment_id, seen.generation) != (wanted.mark.assignment_id, wanted.mark.generation):
        raise OperationFailedError(
            "define",
            f"domain {wanted.mark.vm_id} exists for assignment {seen.assignment_id}"
            f" generation {seen.generation}, not {wanted.mark.assignment_id}"
            f" generation {wanted.mark.generation}",
        )


def has_fuga_mark(conn: libvirt.virConnect, name: str) -> bool:
    """Return whether a domain has fuga's mark; False if it has vanished."""
    try:
        return mark_of(conn.lookupByName(name)) is not None
    except libvirt.libvirtError as error:
        if error.get_error_code() != libvirt.VIR_ERR_NO_DOMAIN:
            raise
        return False
