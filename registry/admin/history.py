"""Past requests and hosts of a period, read from the register center as a simulation trace.

Read only, in one transaction, and streamed: VMs come in order of their creation, a few
thousand at a time, however many there are.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Connection, Row, or_, select

from registry.admin.past_tenants import PastQuota, PastTenant, past_tenants
from registry.catalogue.resources import demands, resource_names
from registry.db.bulk import chunks
from registry.db.engine import Repository
from registry.db.locks import roll_back_when_idle
from registry.db.row_conversion import record_of
from registry.db.schema import (
    assignments,
    events,
    hosts,
    inventories,
    requests,
    round_inputs,
    rounds,
    tenants,
    vms,
)
from registry.lifecycle import FenceState, HostAdmin, HostHealth
from registry.records.requests import Rules
from registry.requests.rules import memberships, rules_of

_BATCH: Final = 2_000
_KINDS: Final = ("host_admin", "host_health", "host_fence")


class HostTransition(StrEnum):
    """A change in whether a host takes VMs."""

    CLOSED = "closed"  #: it takes no more VMs; those that are there stay
    OPENED = "opened"  #: it takes VMs
    FENCED = "fenced"  #: it is proven to be off: its VMs are lost
    RETIRED = "retired"


@dataclass(frozen=True, slots=True, kw_only=True)
class PastHost:
    """A host of the period, with its present capacity."""

    id: UUID
    name: str
    labels: tuple[str, ...]
    capacity: Mapping[str, int]
    created_at: datetime
    was_open: bool  #: at the beginning of the period, or when the host was created
    changes: tuple[tuple[datetime, HostTransition], ...]  #: later changes, in order


@dataclass(frozen=True, slots=True, kw_only=True)
class PastVm:
    """One VM of a past request: its first host, its placement and its end."""

    host_id: UUID | None  #: its host at the beginning of the period
    placed_at: datetime | None  #: the start of the slot in which it got its first place
    ended_at: datetime | None  #: when it was gone; None if it outlived the period


@dataclass(frozen=True, slots=True, kw_only=True)
class PastRequest:
    """VMs of one request that were requested at the same moment."""

    id: UUID
    tenant: str
    requested_at: datetime
    demand: Mapping[str, int]  #: of one VM, overhead included
    min_count: int
    requires: tuple[str, ...]
    hosts: tuple[str, ...] | None
    rules: Rules
    vms: tuple[PastVm, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PastPeriod:
    """A period of the register center. Requests are read lazily and only once."""

    since: datetime
    until: datetime
    resources: tuple[str, ...]
    tenants: tuple[PastTenant, ...]  #: tenants and groups, in order of creation
    quotas: tuple[PastQuota, ...]  #: in order of their owners' creation
    hosts: tuple[PastHost, ...]  #: by name
    requests: Iterator[PastRequest]  #: in order of ``requested_at``


@dataclass(frozen=True, slots=True, kw_only=True)
class PastDecision:
    """How a round was decided: its policy, parameters and stored inputs."""

    round: int
    policy: str
    parameters: Mapping[str, Any]
    slot_length_s: float
    budget_units: int | None
    inputs: bytes | None  #: the stored inputs; None once they are purged
    memory: Mapping[str, int] | None  #: of past holdings; None: they did not count


#: Idle time after which a reader counts as gone.
_IDLE_S: Final = 600.0


class History(Repository):
    """Reads past requests, hosts and rounds."""

    @contextmanager
    def read_period(self, since: datetime, until: datetime) -> Iterator[PastPeriod]:
        """Read the requests and hosts of a period; the transaction ends with the context.

        The transaction has no idle limit, as a reader of a large site works for long between two
        reads. No other transaction waits for it.
        """
        with self._database.read() as connection:
            roll_back_when_idle(connection, _IDLE_S)
            axis = resource_names(connection)
            tenants_, quotas = past_tenants(connection, since, until)
            yield PastPeriod(
                since=since,
                until=until,
                resources=axis,
                tenants=tenants_,
                quotas=quotas,
                hosts=_past_hosts(connection, axis, since, until),
                requests=_stream_requests(connection, since, until),
            )

    def last_decision(self, since: datetime, until: datetime) -> PastDecision | None:
        """Return how a policy decided the newest round of a period, or None if it has no round."""
        query = (
            select(rounds, round_inputs.c.inputs)
            .outerjoin(round_inputs, round_inputs.c.round == rounds.c.number)
            .where(
                rounds.c.slot_start_at >= since,
                rounds.c.slot_start_at <= until,
                rounds.c.decided_by == "policy",
            )
            .order_by(rounds.c.number.desc())
            .limit(1)
        )
        with self._database.read() as connection:
            row = connection.execute(query).one_or_none()
        if row is None:
            return None
        return record_of(PastDecision, row, round=row.number)


def _past_hosts(
    connection: Connection, axis: Sequence[str], since: datetime, until: datetime
) -> tuple[PastHost, ...]:
    """Return the hosts of a past period: not retired at its beginning, or registered in it."""
    capacity: defaultdict[UUID, dict[str, int]] = defaultdict(dict)
    offered = select(inventories.c.host_id, inventories.c.resource, inventories.c.capacity)
    for key, resource, amount in connection.execute(offered):
        capacity[key][resource] = amount
    query = select(
        hosts.c.id, hosts.c.name, hosts.c.labels, hosts.c.admin, hosts.c.health, hosts.c.created_at
    )
    rows = connection.execute(
        query.where(hosts.c.created_at < until).order_by(hosts.c.name, hosts.c.id)
    ).all()
    changes = _host_events(connection, [row.id for row in rows], since)
    found = []
    for row in rows:
        was_open, was_there, transitions = _host_transitions(row, changes[row.id], since, until)
        if was_there:
            found.append(
                PastHost(
                    id=row.id,
                    name=row.name,
                    labels=tuple(row.labels),
                    capacity={name: capacity[row.id].get(name, 0) for name in axis},
                    created_at=row.created_at,
                    was_open=was_open,
                    changes=transitions,
                )
            )
    return tuple(found)


def _host_events(
    connection: Connection, host_ids: Sequence[UUID], since: datetime
) -> defaultdict[str, list[Any]]:
    """Return the changes of hosts' states since the beginning of a past period, by host id."""
    found: defaultdict[Any, list[Any]] = defaultdict(list)
    for some in chunks(host_ids):
        query = (
            select(
                events.c.subject_id,
                events.c.at,
                events.c.kind,
                events.c.from_state,
                events.c.to_state,
            )
            .where(
                events.c.subject_id.in_([str(key) for key in some]),
                events.c.kind.in_(_KINDS),
                events.c.at > since,
            )
            .order_by(events.c.id)
        )
        for row in connection.execute(query):
            found[UUID(row.subject_id)].append(row)
    return found


def _host_transitions(
    host: Any, changes: Sequence[Any], since: datetime, until: datetime
) -> tuple[bool, bool, tuple[tuple[datetime, HostTransition], ...]]:
    """Return whether a host took VMs and existed at the beginning, and its later changes.

    Its first state is the one before its first change, or its present one.
    """

    def at_first(kind: str, now: str) -> str:
        return next((str(each.from_state) for each in changes if each.kind == kind), now)

    state = {
        "host_admin": at_first("host_admin", host.admin),
        "host_health": at_first("host_health", host.health),
    }
    is_open = was_open = _takes_vms(state)
    was_there = state["host_admin"] != HostAdmin.RETIRED.value
    transitions: list[tuple[datetime, HostTransition]] = []
    for each in changes:
        if each.at > until:
            break
        if each.kind == "host_fence":
            if each.to_state == FenceState.FENCED.value and each.from_state != each.to_state:
                transitions.append((each.at, HostTransition.FENCED))
            continue
        state[each.kind] = each.to_state
        if state["host_admin"] == HostAdmin.RETIRED.value:
            transitions.append((each.at, HostTransition.RETIRED))
            break
        if is_open != _takes_vms(state):
            is_open = not is_open
            transitions.append(
                (each.at, HostTransition.OPENED if is_open else HostTransition.CLOSED)
            )
    return was_open, was_there, tuple(transitions)


def _takes_vms(state: Mapping[str, str]) -> bool:
    """Return whether a host with these past states took VMs: active and up."""
    return (state["host_admin"], state["host_health"]) == (
        HostAdmin.ACTIVE.value,
        HostHealth.UP.value,
    )


def _stream_requests(
    connection: Connection, since: datetime, until: datetime
) -> Iterator[PastRequest]:
    """Yield the requests of VMs that existed in a past period."""
    of_type = demands(connection)
    query = (
        select(vms.c.id, vms.c.request_id, vms.c.created_at, vms.c.deleted_at)
        .where(vms.c.created_at <= until, or_(vms.c.deleted_at.is_(None), vms.c.deleted_at > since))
        .order_by(vms.c.created_at, vms.c.request_id, vms.c.id)
    )
    requested_together = itertools.groupby(
        _stream_rows(connection, query), key=lambda row: (row.created_at, row.request_id)
    )
    waiting: list[list[Any]] = []
    for _, rows in requested_together:
        waiting.append(list(rows))
        if sum(map(len, waiting)) >= _BATCH:
            yield from _past_requests(connection, waiting, of_type, since, until)
            waiting = []
    yield from _past_requests(connection, waiting, of_type, since, until)


def _stream_rows(connection: Connection, query: Any) -> Iterator[Row[Any]]:
    """Yield rows as the database finds them: PostgreSQL by a cursor on its side."""
    with connection.execute(query, execution_options={"yield_per": _BATCH}) as result:
        yield from result


def _past_requests(
    connection: Connection,
    together: Sequence[Sequence[Any]],
    of_type: Mapping[UUID, Mapping[str, int]],
    since: datetime,
    until: datetime,
) -> Iterator[PastRequest]:
    """Yield past requests for rows of VMs that were requested together."""
    request_ids = sorted({rows[0].request_id for rows in together})
    found: dict[UUID, Any] = {}
    for some in chunks(request_ids):
        query = (
            select(requests, tenants.c.name.label("tenant"))
            .join(tenants, tenants.c.id == requests.c.tenant_id)
            .where(requests.c.id.in_(some))
        )
        found |= {row.id: row for row in connection.execute(query)}
    of_groups = memberships(connection, request_ids)
    places = _first_places(connection, [row.id for rows in together for row in rows], since, until)
    for rows in together:
        request = found[rows[0].request_id]
        yield PastRequest(
            id=request.id,
            tenant=request.tenant,
            requested_at=rows[0].created_at,
            demand=of_type[request.vm_type_id],
            min_count=request.min_count,
            requires=tuple(request.requires),
            hosts=tuple(request.hosts) if request.hosts is not None else None,
            rules=rules_of(request, of_groups.get(request.id, {})),
            vms=tuple(_past_vm(row, *places.get(row.id, (None, None)), until) for row in rows),
        )


def _past_vm(row: Any, host_id: UUID | None, placed_at: datetime | None, until: datetime) -> PastVm:
    """Return a VM of a past period: its first host, its placement and its end."""
    over = row.deleted_at is not None and row.deleted_at <= until
    return PastVm(host_id=host_id, placed_at=placed_at, ended_at=row.deleted_at if over else None)


def _first_places(
    connection: Connection, vm_ids: Sequence[UUID], since: datetime, until: datetime
) -> Mapping[UUID, tuple[UUID | None, datetime | None]]:
    """Return each VM's host at the beginning of a past period, and when the VM was first placed."""
    found: dict[UUID, tuple[UUID | None, datetime | None]] = {}
    for some in chunks(vm_ids):
        query = (
            select(
                assignments.c.vm_id,
                assignments.c.host_id,
                assignments.c.created_at,
                assignments.c.released_at,
                rounds.c.slot_start_at,
            )
            .join(rounds, rounds.c.number == assignments.c.round)
            .where(assignments.c.vm_id.in_(some), assignments.c.created_at <= until)
            .order_by(assignments.c.vm_id, assignments.c.generation)
        )
        for row in connection.execute(query):
            host_id, placed_at = found.get(row.vm_id, (None, None))
            held = row.created_at <= since and (row.released_at is None or row.released_at > since)
            found[row.vm_id] = (row.host_id if held else host_id, placed_at or row.slot_start_at)
    return found
