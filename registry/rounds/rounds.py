"""Rounds: the one read that they decide on, the one commit, and their record."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from sqlalchemy import Row, select

from registry.db.engine import Database, retry_on_rollback, translate_ledger_refusals
from registry.db.packed_json import unpack_json
from registry.db.pages import DEFAULT_LIMIT, Page, check_limit, decode_cursor, page_of
from registry.db.schema import round_inputs, rounds
from registry.errors import NotFoundError
from registry.records.cluster import ClusterView
from registry.records.liveness import Lease
from registry.records.round_commits import (
    CommittedRound,
    PastHolding,
    PastHoldingChanges,
    RoundCommit,
)
from registry.records.rounds import LatestRound, RoundListEntry, RoundRecord, StoredDecision
from registry.rounds.cluster_view import latest_round, read_cluster
from registry.rounds.commit import commit_round
from registry.rounds.head_signatures import HeadSigner
from registry.rounds.known_hosts import KnownHosts
from registry.rounds.leases import check_epoch
from registry.rounds.past_holdings import read_mean_life_s, read_past_holdings, write_past_holdings

_SUMMARY = tuple(RoundListEntry.__dataclass_fields__)


class Rounds:
    """Reads the cluster for rounds, commits their decisions, and keeps their record."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known = KnownHosts(keeps_holdings=True)
        #: signs the links of committed rounds; None: they are not signed
        self.signer: HeadSigner | None = None
        self._reading = threading.Lock()

    def read_cluster(self, lease: Lease) -> ClusterView:
        """Return the cluster in one consistent read, which builds on the previous one.

        Raises
        ------
        StaleEpochError
            If the lease is not the current one, by the database's clock.
        SlotLoopPausedError
            If an operator wants nothing decided.
        """
        with self._reading, self._database.read() as connection:
            return read_cluster(connection, lease, self._known)

    @retry_on_rollback
    def commit_round(self, commit: RoundCommit) -> CommittedRound:
        """Write a decision and its record in one transaction.

        Dropped are placements on hosts whose version has changed since the round's read,
        placements whose VMs were deleted, and gangs that are incomplete without them.

        Raises
        ------
        StaleEpochError
            If the holder's lease is over, or of another epoch.
        SlotLoopPausedError
            If an operator has paused the slot loop.
        CapacityExceededError
            If the ledger refuses; nothing is written.
        """
        with translate_ledger_refusals(), self._database.write() as connection:
            return commit_round(connection, commit, self.signer)

    def past_holdings(self) -> Mapping[UUID, PastHolding]:
        """Return what is kept of the past holdings of each tenant and group."""
        with self._database.read() as connection:
            return read_past_holdings(connection)

    def mean_life_s(self) -> float | None:
        """Return the mean life of VMs; None if too few have ended."""
        with self._database.read() as connection:
            return read_mean_life_s(connection)

    @retry_on_rollback
    def keep_past_holdings(self, lease: Lease, changes: PastHoldingChanges) -> None:
        """Write changes of past holdings without a round.

        Raises
        ------
        StaleEpochError
            If the lease is over, or of another epoch.
        """
        with self._database.write() as connection:
            check_epoch(connection, lease.name, lease.holder, lease.epoch, until_commit=True)
            write_past_holdings(connection, changes)

    def get(self, number: int) -> RoundRecord:
        """Return a round, with all that a replay needs while it is kept.

        Raises
        ------
        NotFoundError
            If there is none of that number.
        """
        query = (
            select(
                rounds, round_inputs.c.inputs, round_inputs.c.outcome, round_inputs.c.packed_outcome
            )
            .select_from(rounds)
            .outerjoin(round_inputs, round_inputs.c.round == rounds.c.number)
            .where(rounds.c.number == number)
        )
        with self._database.read() as connection:
            row = connection.execute(query).one_or_none() if 0 < number < 2**63 else None
        if row is None:
            raise NotFoundError("round", number)
        return RoundRecord(
            **_summary_fields(row),
            parameters=row.parameters,
            budget_units=row.budget_units,
            **_stored_decision(row),
        )

    def list(
        self, *, limit: int = DEFAULT_LIMIT, cursor: str | None = None
    ) -> Page[RoundListEntry]:
        """Return a page of rounds without their inputs, newest first."""
        query = select(rounds).order_by(rounds.c.number.desc()).limit(check_limit(limit) + 1)
        if cursor is not None:
            (before,) = decode_cursor(cursor, int)
            query = query.where(rounds.c.number < before)
        with self._database.read() as connection:
            found = [RoundListEntry(**_summary_fields(row)) for row in connection.execute(query)]
        return page_of(found, limit, lambda summary: (summary.number,))

    def last(self) -> LatestRound | None:
        """Return the latest round without the tenants' shares, or None before the first."""
        with self._database.read() as connection:
            return latest_round(connection)


def _stored_decision(row: Row[Any]) -> dict[str, Any]:
    """Return the fields of a round's record with its stored decision, or that it is damaged."""
    if row.inputs is None:
        return {"stored": None}
    packed = row.packed_outcome
    try:
        outcome = unpack_json(packed) if packed is not None else row.outcome
    except (zlib.error, ValueError):
        return {"stored": None, "damaged": True}
    return {"stored": StoredDecision(inputs=row.inputs, outcome=outcome)}


def _summary_fields(row: Row[Any]) -> dict[str, Any]:
    """Return the summary of a round's row as fields of its record."""
    fields = {name: row._mapping[name] for name in _SUMMARY}
    return fields | {each: tuple(fields[each]) for each in ("shares", "group_shares")}
