"""Shadow rounds: decisions of a second policy on the inputs of rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from sqlalchemy import func, select

from registry.db.bulk import insert_if_absent
from registry.db.clock import db_now
from registry.db.engine import Repository, retry_on_rollback
from registry.db.pages import DEFAULT_LIMIT, Page, check_limit, decode_cursor, page_of
from registry.db.schema import hosts, round_inputs, rounds, shadow_rounds
from registry.records.liveness import Lease
from registry.requests.rules import zone_of
from registry.rounds.leases import CONTROL_LEASE, check_epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredDecision:
    """The measures of one policy's decision on a snapshot."""

    placed: int
    left_out: int
    used: Mapping[str, float]  #: part of the pool in use after the round, by resource
    fair_distance: float | None  #: as rounds have it
    #: who decides on hosts of which zone; "": on all others
    zones: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewShadowRound:
    """A second policy's decision on a round, or the reason why it is unknown."""

    round: int
    policy: str
    parameters: Mapping[str, Any]
    error: str | None = None
    seconds: float | None = None  #: inside the policy
    cut: bool = False
    decided: MeasuredDecision | None = None  #: by the second policy; None: it failed
    first: MeasuredDecision | None = None  #: by the first, before drops at commit
    agreed: int | None = None  #: VMs that both placed on the same host
    #: of each tenant: name, dominant share before, after the first and after the second;
    #: VMs requested, placed by the first and by the second, and by both on the same host
    shares: Sequence[Mapping[str, Any]] = field(default_factory=tuple)
    skipped: int = 0  #: rounds before it that were passed over


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowRound(NewShadowRound):
    """A stored shadow round."""

    first_policy: str
    slot_start_at: datetime
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class DueRound:
    """The next round for the second policy."""

    number: int
    skipped: int  #: older ones that it will not get to


_SELECT: Final = select(
    shadow_rounds, rounds.c.policy.label("first_policy"), rounds.c.slot_start_at
).join(rounds, rounds.c.number == shadow_rounds.c.round)
_PLAIN: Final = ("round", "policy", "parameters", "error", "seconds", "cut", "agreed", "skipped")


class Shadows(Repository):
    """Stores and lists shadow rounds."""

    def next_due_round(self, max_rounds: int) -> DueRound | None:
        """Return the oldest of the newest ``max_rounds`` rounds that has no shadow decision yet."""
        with self._database.read() as connection:
            last = connection.scalar(select(func.max(shadow_rounds.c.round)))
            query = (
                select(round_inputs.c.round)
                .where(round_inputs.c.round > (last or 0))
                .order_by(round_inputs.c.round.desc())
                .limit(max_rounds)
            )
            numbers = connection.scalars(query).all()
            if not numbers:
                return None
            passed_over = connection.scalar(
                select(func.count())
                .select_from(rounds)
                .where(rounds.c.number > (last or 0), rounds.c.number < numbers[-1])
            )
        return DueRound(number=numbers[-1], skipped=0 if last is None else passed_over or 0)

    @retry_on_rollback
    def add(self, shadow: NewShadowRound, lease: Lease) -> None:
        """Store a shadow round unless the round has one already.

        Raises
        ------
        StaleEpochError
            If the lease is not the current one of the control centre.
        """
        values = {name: getattr(shadow, name) for name in _PLAIN}
        with self._database.write() as connection:
            check_epoch(connection, CONTROL_LEASE, lease.holder, lease.epoch)
            insert_if_absent(
                connection,
                shadow_rounds,
                **{**values, "parameters": dict(shadow.parameters)},
                decided=_measured_json(shadow.decided),
                first=_measured_json(shadow.first),
                shares=[dict(share) for share in shadow.shares],
                created_at=db_now(connection),
            )

    def zones(self) -> Mapping[UUID, str]:
        """Return the zones that hosts are in now, by host; hosts without one are left out."""
        with self._database.read() as connection:
            labelled = connection.execute(select(hosts.c.id, hosts.c.labels)).all()
        return {row.id: zone for row in labelled if (zone := zone_of(row.labels)) is not None}

    def get(self, number: int) -> ShadowRound | None:
        """Return the shadow round of a round, or None."""
        query = _SELECT.where(shadow_rounds.c.round == number)
        with self._database.read() as connection:
            row = connection.execute(query).one_or_none() if 0 < number < 2**63 else None
        return None if row is None else _to_shadow_round(row)

    def list(
        self,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = DEFAULT_LIMIT,
        cursor: str | None = None,
    ) -> Page[ShadowRound]:
        """Return a page of shadow rounds whose slots started from ``since`` on, before ``until``.

        The newest are first.
        """
        query = _SELECT.order_by(shadow_rounds.c.round.desc()).limit(check_limit(limit) + 1)
        if since is not None:
            query = query.where(rounds.c.slot_start_at >= since)
        if until is not None:
            query = query.where(rounds.c.slot_start_at < until)
        if cursor is not None:
            (before,) = decode_cursor(cursor, int)
            query = query.where(shadow_rounds.c.round < before)
        with self._database.read() as connection:
            found = [_to_shadow_round(row) for row in connection.execute(query)]
        return page_of(found, limit, lambda shadow: (shadow.round,))


def _to_shadow_round(row: Any) -> ShadowRound:
    """Return the record of a shadow round from its row."""
    values = {each.name: row._mapping[each.name] for each in fields(ShadowRound)}
    values["shares"] = tuple(values["shares"])
    for name in ("decided", "first"):
        values[name] = None if values[name] is None else MeasuredDecision(**values[name])
    return ShadowRound(**values)


def _measured_json(decided: MeasuredDecision | None) -> dict[str, Any] | None:
    """Return the measures of a policy's decision as JSON values to be stored; None for None."""
    if decided is None:
        return None
    values = {each.name: getattr(decided, each.name) for each in fields(MeasuredDecision)}
    return values | {"used": dict(decided.used), "zones": dict(decided.zones)}
