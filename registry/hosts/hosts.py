"""Hosts: registration, administrative state, settings and capacity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import insert, select, tuple_, update
from sqlalchemy.exc import IntegrityError

from plain_text import split_host_name
from registry.audit.events import event_row, record_event, record_events
from registry.catalogue.resources import INVENTORIES, resource_names
from registry.db.clock import db_now
from registry.db.engine import Repository, retry_on_rollback
from registry.db.idempotency_keys import store_result
from registry.db.ids import uuid7
from registry.db.locks import lock_hosts, take_advisory_lock
from registry.db.names import check_amounts, check_int, check_labels, check_new_name
from registry.db.pages import (
    DEFAULT_LIMIT,
    Page,
    check_limit,
    decode_cursor,
    name_contains,
    page_of,
)
from registry.db.schema import hosts, inventories
from registry.errors import (
    AnotherMachineError,
    ConflictError,
    DuplicateError,
    InvalidError,
    NotFoundError,
)
from registry.hosts.admin import change_admin
from registry.hosts.host_map import host_map
from registry.hosts.host_records import find_host_id, read_host, read_hosts, to_hosts
from registry.hosts.machine_names import other_machine_message
from registry.hosts.machines import host_with_machine
from registry.hosts.missed_polls import record_misses
from registry.hosts.ratios import ratios_by_label, refresh_ratios, write_label_ratios
from registry.hosts.reports import record_reports
from registry.hosts.stored_reports import hosts_with_addresses, latest_report, latest_reports
from registry.hosts.uris import DEFAULT_URI_POLICY, UriPolicy, check_uri
from registry.hosts.validation import (
    MAX_BUILDS,
    Keep,
    checked_amounts,
    checked_connection,
    checked_fence_target,
    checked_fields,
    checked_host_labels,
    inventory_rows,
    refuse_taken_fence_target,
)
from registry.lifecycle import HostAdmin, HostAdminEvent
from registry.records.hosts import Host, HostMap, HostReport, Miss, MissPolicy, NewHost


class Hosts(Repository):
    """Registers, reads, changes and retires hosts, and stores their polls."""

    @retry_on_rollback
    def add(self, new: NewHost, *, actor: str, uri_policy: UriPolicy = DEFAULT_URI_POLICY) -> Host:
        """Register a host; it is enrolling until the monitor reaches it."""
        check_new_name("name", new.name)
        check_uri(new.uri, uri_policy)
        values = checked_fields(new)
        key = uuid7()
        with self._database.write() as connection:
            take_advisory_lock(connection, INVENTORIES)
            names = resource_names(connection)
            rows = inventory_rows(key, new, names)
            taken = connection.execute(
                select(hosts.c.name, hosts.c.uri).where(
                    hosts.c.admin != HostAdmin.RETIRED.value,
                    (hosts.c.name == new.name) | (hosts.c.uri == new.uri),
                )
            ).first()
            if taken is not None:
                field = "name" if taken.name == new.name else "uri"
                raise DuplicateError("host", field, getattr(new, field), of=taken.name)
            refuse_taken_fence_target(connection, values["fence_target"], key)
            now = db_now(connection)
            try:
                connection.execute(insert(hosts).values(id=key, created_at=now, **values))
            except IntegrityError as error:
                raise DuplicateError("host", "name or uri", new.name) from error
            connection.execute(insert(inventories), rows)
            refresh_ratios(connection, [key])
            record_event(
                connection,
                now,
                actor,
                "host_added",
                "host",
                key,
                change=(None, HostAdmin.ACTIVE),
                data={"name": new.name, "uri": new.uri},
            )
            return store_result(connection, read_host(connection, key))

    def list(
        self,
        *,
        limit: int = DEFAULT_LIMIT,
        cursor: str | None = None,
        search: str | None = None,
        include_retired: bool = False,
        address: str | None = None,
        mac: str | None = None,
    ) -> Page[Host]:
        """Return a page of hosts, by name; ``search`` is a part of the name.

        ``address`` and ``mac`` are those of the host's last report.
        """
        query = select(hosts).order_by(hosts.c.name, hosts.c.id).limit(check_limit(limit) + 1)
        query = query.where(*name_contains(hosts.c.name, search))
        if address is not None or mac is not None:
            query = query.where(hosts.c.id.in_(hosts_with_addresses(address, mac)))
        if not include_retired:
            query = query.where(hosts.c.admin != HostAdmin.RETIRED.value)
        if cursor is not None:
            name, text = decode_cursor(cursor, str, str)
            try:
                last = UUID(hex=str(text))
            except ValueError:
                raise InvalidError("cursor", cursor, "a cursor of an earlier page") from None
            query = query.where(tuple_(hosts.c.name, hosts.c.id) > (name, last))
        with self._database.read() as connection:
            found = to_hosts(connection, connection.execute(query).all())
        return page_of(found, limit, lambda host: (host.name, host.id.hex))

    def all(self) -> tuple[Host, ...]:
        """Return every host that is not retired, by name."""
        query = select(hosts).where(hosts.c.admin != HostAdmin.RETIRED.value).order_by(hosts.c.name)
        with self._database.read() as connection:
            return to_hosts(connection, connection.execute(query).all())

    def map(self) -> HostMap:
        """Return all hosts that are not retired, in columns, for a map of the site."""
        with self._database.read() as connection:
            return host_map(connection)

    def get(self, name: str) -> Host:
        """Return the host with a name, a retired one if no other has it."""
        with self._database.read() as connection:
            return read_host(connection, find_host_id(connection, name))

    @retry_on_rollback
    def change_admin(
        self,
        name: str,
        event: HostAdminEvent,
        *,
        actor: str,
        reason: str | None = None,
        volumes_lost: bool = False,
    ) -> Host:
        """Change the administrative state of a host.

        With ``volumes_lost`` a host is retired with its volumes, whose files are lost.

        Raises
        ------
        ConflictError
            If it is to be retired and an assignment or a volume holds capacity there.
        IllegalTransitionError
            If the host is retired.
        """
        with self._database.write() as connection:
            key = find_host_id(connection, name)
            change_admin(
                connection, key, event, actor=actor, reason=reason, volumes_lost=volumes_lost
            )
            return read_host(connection, key)

    @retry_on_rollback
    def update(
        self,
        name: str,
        *,
        uri: str | None = None,
        uri_policy: UriPolicy = DEFAULT_URI_POLICY,
        labels: Sequence[str] | None = None,
        overrides: Mapping[str, int | None] | None = None,
        reserved: Mapping[str, int] | None = None,
        ratios: Mapping[str, int | None] | None = None,
        max_builds: int | None = None,
        fence_target: str | None = None,
        credential: str | Keep | None = Keep.AS_IT_IS,
        ssh_host_keys: Sequence[str] | None = None,
        actor: str,
    ) -> Host:
        """Change the given settings of a host.

        None removes a value: an override gives way to the detected amount, a ratio to that of the
        host's labels, a credential to that of the machine. An empty fence target removes the
        target. Another ``uri`` leads to the same host, with all that is on it: reports of another
        machine there are not believed.
        """
        if uri is not None:
            check_uri(uri, uri_policy)
        with self._database.write() as connection:
            key = find_host_id(connection, name)
            lock_hosts(connection, key)
            before = read_host(connection, key)
            if before.admin == HostAdmin.RETIRED:
                raise ConflictError(f"host {name} is retired")
            names = resource_names(connection)
            values = _changed_columns(
                before,
                uri=uri,
                labels=labels,
                max_builds=max_builds,
                fence_target=fence_target,
                credential=credential,
                ssh_host_keys=ssh_host_keys,
            )
            refuse_taken_fence_target(connection, values.get("fence_target"), key)
            if values:
                try:
                    connection.execute(update(hosts).where(hosts.c.id == key).values(**values))
                except IntegrityError as error:
                    raise DuplicateError("host", "uri", uri) from error
            changes: dict[str, dict[str, int | None]] = {}
            for field, column, amounts, low in (
                ("overrides", "override", overrides or {}, 0),
                ("reserved", "reserved", reserved or {}, 0),
                ("ratios", "own_ratio_thousandths", ratios or {}, 1),
            ):
                cleared = [each for each, amount in amounts.items() if amount is None]
                given = {each: amount for each, amount in amounts.items() if amount is not None}
                check_amounts(field, dict.fromkeys(cleared, 0), names)
                for each in cleared:
                    changes.setdefault(each, {})[column] = None
                for each, amount in checked_amounts(field, given, names, low).items():
                    changes.setdefault(each, {})[column] = amount
            for each, columns in sorted(changes.items()):
                connection.execute(
                    update(inventories)
                    .where(inventories.c.host_id == key, inventories.c.resource == each)
                    .values(**columns)
                )
            if labels is not None or ratios:
                refresh_ratios(connection, [key])
            after = read_host(connection, key)
            if after != before:
                now = db_now(connection)
                data = {"name": name, **values, "inventories": changes}
                if after.uri != before.uri:
                    data["uri_before"] = before.uri
                history = [event_row(now, actor, "host_updated", "host", key, data=data)]
                history += _shrink_events(now, actor, before, after)
                record_events(connection, history)
            return after

    def label_ratios(self) -> Mapping[str, Mapping[str, int]]:
        """Return the default ratios of hosts by label and resource, in thousandths."""
        with self._database.read() as connection:
            return ratios_by_label(connection)

    @retry_on_rollback
    def set_label_ratios(
        self, label: str, ratios: Mapping[str, int], *, actor: str
    ) -> Mapping[str, int]:
        """Set the default ratios of hosts with a label; an empty mapping removes them.

        If a host has several labels with ratios, the lowest ratio counts.
        """
        check_labels("label", [label])
        with self._database.write() as connection:
            take_advisory_lock(connection, INVENTORIES)
            checked = checked_amounts("ratios", ratios, resource_names(connection), 1)
            keys = connection.scalars(select(hosts.c.id)).all()
            lock_hosts(connection, *keys)
            every = select(hosts).where(hosts.c.admin != HostAdmin.RETIRED.value)
            query = every.order_by(hosts.c.name)
            before = to_hosts(connection, connection.execute(query).all())
            write_label_ratios(connection, label, checked)
            refresh_ratios(connection, [host.id for host in before])
            after = to_hosts(connection, connection.execute(query).all())
            now = db_now(connection)
            data = {"label": label, "ratios": checked}
            history = [event_row(now, actor, "label_ratios_set", "cluster", "hosts", data=data)]
            for old, new in zip(before, after, strict=True):
                history += _shrink_events(now, actor, old, new)
            record_events(connection, history)
            return checked

    def record_report(self, host_id: UUID, report: HostReport, *, actor: str = "monitor") -> Host:
        """Store the monitor's report of a polled host; see `reports.record_reports`.

        Raises
        ------
        AnotherMachineError
            If another machine answered, without anything of the host's.
        NotFoundError
            If there is no such host.
        """
        found = self.record_reports({host_id: report}, actor=actor)[host_id]
        if isinstance(found, Host):
            return found
        raise found

    @retry_on_rollback
    def record_reports(
        self, reports: Mapping[UUID, HostReport], *, actor: str = "monitor"
    ) -> Mapping[UUID, Host | AnotherMachineError | NotFoundError]:
        """Store the monitor's reports of polled hosts in one transaction.

        Returns for each the host as it is now, or the error of `record_report`.
        """
        with self._database.write() as connection:
            lock_hosts(connection, *reports)
            before = read_hosts(connection, reports)
            now = db_now(connection)
            polls = [(host, reports[key]) for key, host in before.items()]
            others = record_reports(connection, polls, now=now, actor=actor)
            after = read_hosts(connection, before)
            known_as = {
                key: host_with_machine(
                    connection, uuid, split_host_name(reports[key].hostname)[0], apart_from=key
                )
                for key in others
                if (uuid := reports[key].machine_uuid) is not None
            }
            history = [
                row for key in before for row in _shrink_events(now, actor, before[key], after[key])
            ]
            record_events(connection, history)
        found: dict[UUID, Host | AnotherMachineError | NotFoundError] = {}
        for key, report in reports.items():
            if key not in after:
                found[key] = NotFoundError("host", key)
            elif key in others:
                host = before[key]
                what = other_machine_message(
                    host.machine_uuid,
                    report.machine_uuid,
                    host.machine_name,
                    split_host_name(report.hostname)[0],
                    known_as=known_as.get(key),
                )
                found[key] = AnotherMachineError(host.name, what)
            else:
                found[key] = after[key]
        return found

    def record_miss(
        self,
        host_id: UUID,
        error: str,
        *,
        unreachable_after: int,
        down_after: int,
        started_at: datetime | None = None,
        apart_s: float = 0.0,
        actor: str = "monitor",
    ) -> Host:
        """Record that a poll of a host, begun at ``started_at``, failed.

        See `missed_polls.record_misses`.
        """
        policy = MissPolicy(
            unreachable_after=unreachable_after, down_after=down_after, apart_s=apart_s
        )
        found = self.record_misses({host_id: Miss(error, started_at)}, policy, actor=actor)[host_id]
        if isinstance(found, Host):
            return found
        raise found

    @retry_on_rollback
    def record_misses(
        self, misses: Mapping[UUID, Miss], policy: MissPolicy, *, actor: str = "monitor"
    ) -> Mapping[UUID, Host | NotFoundError]:
        """Record in one transaction that polls of hosts failed; see `missed_polls`.

        Returns each host as it is now.
        """
        with self._database.write() as connection:
            lock_hosts(connection, *misses)
            now = db_now(connection)
            found = [(host, misses[key]) for key, host in read_hosts(connection, misses).items()]
            record_misses(connection, found, policy, now=now, actor=actor)
            after = read_hosts(connection, misses)
        return {key: after.get(key) or NotFoundError("host", key) for key in misses}

    def latest_report(self, name: str) -> HostReport:
        """Return a host's latest report, or raise `NotFoundError` if it never answered a poll."""
        host = self.get(name)
        with self._database.read() as connection:
            report = latest_report(connection, host.id)
        if report is None:
            raise NotFoundError("report of host", name)
        return report

    def latest_reports(self) -> Mapping[UUID, HostReport]:
        """Return the latest reports of hosts that are not retired."""
        with self._database.read() as connection:
            return latest_reports(connection)


def _changed_columns(
    before: Host,
    *,
    uri: str | None,
    labels: Sequence[str] | None,
    max_builds: int | None,
    fence_target: str | None,
    credential: str | Keep | None,
    ssh_host_keys: Sequence[str] | None,
) -> dict[str, Any]:
    """Return the columns for the changed settings of a host, checked."""
    values: dict[str, Any] = {}
    if labels is not None:
        values |= checked_host_labels(labels)
    if max_builds is not None:
        values["max_builds"] = check_int("max_builds", max_builds, 1, MAX_BUILDS)
    if fence_target is not None:
        values["fence_target"] = checked_fence_target(fence_target or None)
    if uri not in {None, before.uri}:
        values["uri"] = uri
    if "uri" in values or credential is not Keep.AS_IT_IS or ssh_host_keys is not None:
        values |= checked_connection(
            uri or before.uri,
            before.credential if isinstance(credential, Keep) else credential,
            before.ssh_host_keys if ssh_host_keys is None else ssh_host_keys,
        )
    return values


def _shrink_events(now: datetime, actor: str, before: Host, after: Host) -> list[dict[str, Any]]:
    """Return an event for each resource of which a host's capacity fell below what is committed."""
    return [
        event_row(
            now,
            actor,
            "capacity_below_committed",
            "host",
            after.id,
            data={
                "name": after.name,
                "resource": new.resource,
                "capacity": new.capacity,
                "committed": new.committed,
            },
        )
        for old, new in zip(before.inventories, after.inventories, strict=True)
        if new.committed > new.capacity and not old.committed > old.capacity
    ]
