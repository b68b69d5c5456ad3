"""What tenants and groups held in the past: read before a round, written with its commit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from uuid import UUID

from sqlalchemy import Connection, delete, select

from registry.db.bulk import chunks, insert_rows, is_any_of
from registry.db.clock import db_now
from registry.db.schema import past_holdings
from registry.records.round_commits import PastHolding, PastHoldingChanges
from registry.rounds.forecast_inputs import sample_past_lives

#: Ends of VMs from which a mean life is learned.
_MIN_ENDS: Final = 20


def read_past_holdings(connection: Connection) -> Mapping[UUID, PastHolding]:
    """Return what is kept of each tenant and group."""
    return {
        row.owner_id: PastHolding(past=row.past, charged=row.charged, at_us=row.at_us)
        for row in connection.execute(select(past_holdings).order_by(past_holdings.c.owner_id))
    }


def write_past_holdings(connection: Connection, changes: PastHoldingChanges) -> None:
    """Replace what is kept of some tenants and groups, and delete what is kept of others."""
    if changes.replaces_all:
        connection.execute(delete(past_holdings))
    for some in chunks(sorted([*changes.gone, *changes.kept])):
        connection.execute(
            delete(past_holdings).where(is_any_of(connection, past_holdings.c.owner_id, some))
        )
    insert_rows(
        connection,
        past_holdings,
        [
            {
                "owner_id": owner,
                "past": dict(each.past),
                "charged": dict(each.charged),
                "at_us": each.at_us,
            }
            for owner, each in sorted(changes.kept.items())
        ],
    )


def read_mean_life_s(connection: Connection) -> float | None:
    """Return the mean life of VMs that the register center has learned; None: too few ended.

    It is the time that sampled VMs ran per end, which counts VMs that still run.
    """
    lives = sample_past_lives(connection, db_now(connection))
    ends = sum(life.ended for life in lives)
    return None if ends < _MIN_ENDS else sum(life.lived_s for life in lives) / ends
