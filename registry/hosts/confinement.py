"""The security model that confines the guests of a host, as its libvirt reports it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Final

from sqlalchemy import Connection, update

from registry.audit.events import record_event
from registry.db.schema import hosts
from registry.records.hosts import Host, HostReport

UNCONFINED: Final = "none"


def store_confinement(
    connection: Connection, host: Host, report: HostReport, *, now: datetime, actor: str
) -> None:
    """Store a host's reported security model, and an event when it stops confining its guests."""
    model = report.security_model or host.security_model
    kept = host.shares_kept if report.shares_kept is None else report.shares_kept
    if (model, kept) == (host.security_model, host.shares_kept):
        return
    values = {"security_model": model, "shares_kept": kept}
    connection.execute(update(hosts).where(hosts.c.id == host.id).values(**values))
    if model == UNCONFINED and host.security_model != UNCONFINED:
        data = {"name": host.name, "before": host.security_model}
        record_event(connection, now, actor, "host_unconfined", "host", host.id, data=data)


def confinement_warnings(model: str | None, shares_kept: bool | None) -> Iterator[str]:
    """Yield warnings about how a host's security model confines its guests."""
    if model == UNCONFINED:
        yield (
            "libvirt there has no security model (AppArmor, SELinux): a guest that takes its QEMU"
            " over reaches the disks of all others"
        )
    if shares_kept is False:
        yield "it has no cgroup of processors: busy ones are not shared out by vCPUs"
