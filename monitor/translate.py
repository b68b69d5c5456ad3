"""Between what a hypervisor knows and what the register center keeps."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from hypervisor import Credential, DomainSeen
from hypervisor import HostReport as SeenReport
from registry import CredentialFiles, DomainReport, Host, HostReport


def to_credential(files: CredentialFiles | None, host: Host) -> Credential | None:
    """Put what lies here together with what the register center says of the host."""
    if files is None:
        return None
    return Credential(
        name=files.name,
        folder=str(files.folder),
        stamp=files.stamp,
        ssh_host_keys=host.ssh_host_keys,
    )


def to_report(
    seen: SeenReport, *, started_at: datetime, polled_at: datetime, took_ms: int
) -> HostReport:
    """Turn one look at a host into the report of it."""
    return HostReport(
        hostname=seen.hostname,
        detected={
            "vcpus": seen.vcpus,
            "memory_mib": seen.memory_mib,
            "disk_gib": seen.disk_gib,
        },
        cpu_busy_percent=seen.cpu_busy_percent,
        memory_used_mib=seen.memory_used_mib,
        disk_used_gib=seen.disk_used_gib,
        domains=tuple(_to_domain(domain) for domain in seen.domains),
        volumes=tuple(volume.name for volume in seen.volumes),
        machine_uuid=seen.machine_uuid,
        started_at=started_at,
        polled_at=polled_at,
        took_ms=took_ms,
    )


def _to_domain(domain: DomainSeen) -> DomainReport:
    assignment_id = _uuid_or_none(domain.mark.assignment_id) if domain.mark else None
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
    )


def _uuid_or_none(text: str) -> UUID | None:
    """Read a mark's id; who writes our element with anything else in it is a stranger."""
    try:
        return UUID(text)
    except ValueError:
        return None
