"""The stored latest report of each host."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Mapping
from dataclasses import fields
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, Select, Text, cast, select

from registry.db.bulk import insert_rows, is_any_of, update_rows
from registry.db.schema import host_reports, hosts
from registry.errors import InvalidError
from registry.lifecycle import HostAdmin
from registry.records.hosts import DomainReport, HostReport

_DOMAIN_FIELDS: Final = tuple(field.name for field in fields(DomainReport))
_MAC: Final = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")
_REPORT_FIELDS: Final = tuple(field.name for field in fields(HostReport))


def store_latest_reports(connection: Connection, reports: Mapping[UUID, HostReport]) -> None:
    """Replace the latest reports of hosts, which are locked."""
    rows = [
        {"host_id": key, "report": _report_to_json(report), "polled_at": report.polled_at}
        for key, report in reports.items()
    ]
    query = select(host_reports.c.host_id).where(host_reports.c.host_id.in_(list(reports)))
    there = set(connection.scalars(query)) if reports else set()
    update_rows(
        connection,
        host_reports,
        [row for row in rows if row["host_id"] in there],
        keys=("host_id",),
    )
    insert_rows(connection, host_reports, [row for row in rows if row["host_id"] not in there])


def latest_reports(connection: Connection) -> Mapping[UUID, HostReport]:
    """Return the latest reports of hosts that are not retired, by host."""
    query = (
        select(host_reports)
        .join(hosts, hosts.c.id == host_reports.c.host_id)
        .where(hosts.c.admin != HostAdmin.RETIRED.value)
        .order_by(hosts.c.name)
    )
    return {row.host_id: _report_from_json(row.report) for row in connection.execute(query)}


def read_reports(connection: Connection, host_ids: Collection[UUID]) -> Mapping[UUID, HostReport]:
    """Return the latest stored reports of some hosts; a host that never answered has none."""
    query = select(host_reports).where(is_any_of(connection, host_reports.c.host_id, host_ids))
    return {row.host_id: _report_from_json(row.report) for row in connection.execute(query)}


def latest_report(connection: Connection, host_id: UUID) -> HostReport | None:
    """Return the latest stored report of one host; None if it never answered."""
    query = select(host_reports.c.report).where(host_reports.c.host_id == host_id)
    found = connection.scalars(query).one_or_none()
    return _report_from_json(found) if found is not None else None


def hosts_with_addresses(address: str | None, mac: str | None) -> Select[tuple[UUID]]:
    """Select the ids of hosts whose last report has an IP address and a MAC address.

    Raises
    ------
    InvalidError
        If an address is invalid.
    """
    query = select(host_reports.c.host_id)
    if address is not None:
        try:
            text = str(ipaddress.ip_address(address))
        except ValueError:
            raise InvalidError("address", address, "an IPv4 or IPv6 address") from None
        query = query.where(_has_json_value("addresses", text))
    if mac is not None:
        text = mac.lower().replace("-", ":")
        if not _MAC.fullmatch(text):
            raise InvalidError("mac", mac, "a MAC address such as 52:54:00:12:34:56")
        query = query.where(_has_json_value("interfaces", text))
    return query


def _has_json_value(name: str, value: str) -> ColumnElement[bool]:
    """Return the condition that a list of a stored report contains a value, by comparing text."""
    return cast(host_reports.c.report[name], Text).like(f'%"{value}"%')


def _report_to_json(record: HostReport | DomainReport) -> dict[str, Any]:
    """Return a host's report, or one of its domains, as JSON values to be stored."""
    names = _REPORT_FIELDS if isinstance(record, HostReport) else _DOMAIN_FIELDS
    return {name: _json_value(getattr(record, name)) for name in names}


def _json_value(value: Any) -> Any:
    """Return a value of a host's report in its JSON form."""
    match value:
        case UUID():
            return str(value)
        case datetime():
            return value.isoformat()
        case tuple():
            return [_json_value(each) for each in value]
        case DomainReport():
            return _report_to_json(value)
    return dict(value) if isinstance(value, Mapping) else value


def _report_from_json(stored: Mapping[str, Any]) -> HostReport:
    """Return the host's report that JSON values hold, without fields that later versions added."""
    domains = tuple(
        DomainReport(
            **{name: each[name] for name in _DOMAIN_FIELDS if name in each}
            | {
                "uuid": UUID(each["uuid"]),
                "assignment_id": UUID(each["assignment_id"]) if each["assignment_id"] else None,
                "attached": None if each.get("attached") is None else tuple(each["attached"]),
                "volume_files": tuple(each.get("volume_files", ())),
            }
        )
        for each in stored["domains"]
    )
    times = {
        key: datetime.fromisoformat(stored[key])
        for key in ("started_at", "polled_at", "pool_silent_since")
        if stored.get(key) is not None
    }
    kept = {name: stored[name] for name in _REPORT_FIELDS if name in stored}
    names = {name: tuple(stored.get(name, ())) for name in ("volumes", "unnamed", "addresses")}
    return HostReport(**(kept | times | names | {"domains": domains}))
