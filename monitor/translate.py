"""Conversion between values of `hypervisor` and of the register center."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from hypervisor import Credential, HostDomain, OperationFailedError
from hypervisor import HostPoll as SeenReport
from registry.hosts import CredentialFiles, DomainReport, HostReport, WatchedHost

#: Maximum of any reported number: an exbibyte of memory. Sums over domains and products with
#: over-commit ratios still fit into 64 bits.
MAX_REPORTED: Final = 1 << 40
_MAC: Final = re.compile(r"[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){5}")


def to_credential(files: CredentialFiles | None, host: WatchedHost) -> Credential | None:
    """Return the credential of a host's connection, from files here and the host's settings."""
    if files is None:
        return None
    return Credential(
        name=files.name,
        folder=str(files.folder),
        stamp=files.stamp,
        ssh_host_keys=host.ssh_host_keys,
    )


def to_report(
    seen: SeenReport,
    *,
    started_at: datetime,
    polled_at: datetime,
    took_ms: int,
    addresses: tuple[str, ...] = (),
) -> HostReport:
    """Return the report of one poll of a host.

    Raises
    ------
    OperationFailedError
        If it reports impossible amounts, which the database could not store.
    """
    _check_amounts(seen)
    return HostReport(
        hostname=seen.hostname,
        detected={
            "vcpus": seen.vcpus,
            "memory_mib": seen.memory_mib,
            **({} if seen.disk_gib is None else {"disk_gib": seen.disk_gib}),
        },
        cpu_busy_percent=seen.cpu_busy_percent,
        memory_used_mib=seen.memory_used_mib,
        disk_used_gib=seen.disk_used_gib,
        domains=tuple(_to_domain_report(domain) for domain in seen.domains),
        volumes=tuple(volume.name for volume in seen.volumes),
        unnamed=seen.unnamed,
        interfaces={name: mac.lower() for name, mac in seen.interfaces if _MAC.fullmatch(mac)},
        addresses=addresses,
        machine_uuid=seen.machine_uuid,
        security_model=seen.security_model,
        shares_kept=seen.shares_kept,
        can_filter=seen.can_filter,
        started_at=started_at,
        polled_at=polled_at,
        took_ms=took_ms,
        largest_console_bytes=seen.largest_console_bytes,
        pool_silent_since=(
            None
            if seen.pool_silent_s is None
            else polled_at - timedelta(seconds=seen.pool_silent_s)
        ),
    )


def _check_amounts(seen: SeenReport) -> None:
    """Raise `OperationFailedError` if a host reports impossible amounts or UUIDs."""
    for what, amount in _resource_amounts(seen):
        if amount is not None and not 0 <= amount <= MAX_REPORTED:
            raise OperationFailedError("report", f"the host reports {amount:.4g} {what}")
    if seen.machine_uuid is not None and _parse_uuid(seen.machine_uuid) is None:
        raise OperationFailedError("report", f"{seen.machine_uuid[:40]!r} is not a machine's UUID")
    for domain in seen.domains:
        if _parse_uuid(domain.uuid) is None:
            raise OperationFailedError("report", f"{domain.uuid[:40]!r} is not a domain's UUID")


def _resource_amounts(seen: SeenReport) -> Iterator[tuple[str, int | None]]:
    """Yield the amounts that a host reports, its own and its domains', each with what it is."""
    yield "vcpus", seen.vcpus
    yield "MiB of memory", seen.memory_mib
    yield "MiB of memory in use", seen.memory_used_mib
    yield "GiB of disk", seen.disk_gib
    yield "GiB of disk in use", seen.disk_used_gib
    for domain in seen.domains:
        yield f"vcpus of domain {domain.name}", domain.vcpus
        yield f"MiB of memory of domain {domain.name}", domain.memory_mib
        yield f"GiB of disk of domain {domain.name}", domain.disk_gib


def _to_domain_report(domain: HostDomain) -> DomainReport:
    """Return a domain that the hypervisor found as the register center stores it."""
    assignment_id = _parse_uuid(domain.mark.assignment_id) if domain.mark else None
    return DomainReport(
        uuid=UUID(domain.uuid),
        name=domain.name,
        state=domain.state.value,
        vcpus=domain.vcpus,
        memory_mib=domain.memory_mib,
        disk_gib=domain.disk_gib,
        assignment_id=assignment_id,
        generation=domain.mark.generation if domain.mark and assignment_id else None,
        cpu_time_ns=domain.cpu_time_ns,
        memory_used_mib=domain.memory_used_mib,
        off_reason=domain.off_reason,
        filtered=domain.filtered,
        capped_disk=domain.capped_disk,
        attached=domain.attached,
        volume_files=domain.volume_files,
    )


def _parse_uuid(text: str) -> UUID | None:
    """Parse the UUID in a domain's mark; return None for other text."""
    try:
        return UUID(text)
    except ValueError:
        return None
