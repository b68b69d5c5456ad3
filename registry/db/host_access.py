"""The columns from which a worker's `HostAccess` is read."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import Row, and_, case, exists, or_

from registry.db.row_conversion import record_of
from registry.db.schema import host_reports, hosts
from registry.lifecycle import HostAdmin
from registry.records.hosts import HostAccess

#: UUIDs that vendors leave in the firmware of many boards.
VENDOR_UUIDS: Final = frozenset(
    {
        "00020003-0004-0005-0006-000700080009",
        "03000200-0400-0500-0006-000700080009",
        "12345678-1234-5678-90ab-cddeefaabbcc",
        "fefefefe-fefe-fefe-fefe-fefefefefefe",
    }
)
_others = hosts.alias("others")
_has_a_twin = (
    exists()
    .where(
        _others.c.machine_uuid == hosts.c.machine_uuid,
        _others.c.id != hosts.c.id,
        _others.c.admin != HostAdmin.RETIRED.value,
    )
    .correlate_except(_others)
)
_by_name = or_(
    hosts.c.machine_label.is_not(None), hosts.c.machine_uuid.in_(sorted(VENDOR_UUIDS)), _has_a_twin
)

#: Whether the last report that counted had no UUID, and no other machine answers in its place.
_reports_no_uuid = and_(
    hosts.c.found_machine_uuid.is_(None),
    exists()
    .where(
        host_reports.c.host_id == hosts.c.id,
        host_reports.c.report["machine_uuid"].as_string().is_(None),
    )
    .correlate_except(host_reports),
)

HOST_COLUMNS = (
    hosts.c.id.label("host_id"),
    hosts.c.name.label("host_name"),
    hosts.c.uri,
    hosts.c.credential,
    hosts.c.ssh_host_keys,
    hosts.c.health,
    hosts.c.domain_type,
    hosts.c.pool,
    hosts.c.network,
    hosts.c.base_volume,
    hosts.c.memory_backing_mib,
    hosts.c.machine_uuid,
    # If several machines report one UUID, the name decides.
    case((_by_name, hosts.c.machine_name)).label("machine_name"),
    hosts.c.machine_domain,
    _reports_no_uuid.label("reports_no_uuid"),
    hosts.c.pool_silent_since,
)


def to_host_access(row: Row[Any]) -> HostAccess:
    """Return how a worker reaches a host, from a row with `HOST_COLUMNS`."""
    return record_of(
        HostAccess,
        row,
        id=row.host_id,
        name=row.host_name,
        machine=_machine_key(row),
        pool_silent=row.pool_silent_since is not None,
    )


def _machine_key(row: Row[Any]) -> str | None:
    """Return a text that identifies the machine of a host by its UUID and name, or None.

    `HostAccess.machine` says what the text looks like.
    """
    if row.machine_uuid is None:
        return None
    key = f"{'?' if row.reports_no_uuid else ''}{row.machine_uuid}"
    if row.machine_name is None:
        return key
    domain = "" if row.machine_domain is None else f".{row.machine_domain}"
    return f"{key}/{row.machine_name}{domain}"
