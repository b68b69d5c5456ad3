"""Records of decided rounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from registry.errors import RoundDamagedError, RoundPurgedError

DecidedBy = Literal["policy", "fallback"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundListEntry:
    """A round in a list."""

    number: int
    slot_start_at: datetime
    slot_length_s: float
    policy: str
    decided_by: DecidedBy
    fallback_reason: str | None
    placed: int
    left_out: int
    dropped: int
    cut: bool
    work: int
    shares: tuple[Mapping[str, Any], ...]
    bound: float | None
    #: mean |share - fair target| of the tenants per mean target
    fair_distance: float | None
    timings: Mapping[str, float]
    engine_version: str
    seed: int
    inputs_digest: str
    created_at: datetime
    group_shares: tuple[Mapping[str, Any], ...] = ()  #: of the groups of tenants
    prices: Mapping[str, Any] | None = None  #: None: of a round from before, or not known
    #: half-life and horizon of past holdings; None: they did not count
    memory: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LatestRound:
    """The values of the latest round that the next one needs."""

    number: int
    slot_start_at: datetime
    placed: int
    left_out: int
    dropped: int
    cut: bool
    inputs_digest: str
    memory: Mapping[str, int] | None = None  #: None: it counted no past holdings


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredDecision:
    """The stored inputs and outcome of a round."""

    inputs: bytes
    outcome: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundRecord(RoundListEntry):
    """A round with its parameters and, while they are kept, all that a replay needs."""

    parameters: Mapping[str, Any]
    budget_units: int | None
    stored: StoredDecision | None  #: None if purged or damaged
    damaged: bool = False  #: whether the stored data cannot be read

    def decision(self) -> StoredDecision:
        """Return the inputs and outcome for a replay of the round.

        Raises
        ------
        RoundPurgedError
            If they were purged.
        RoundDamagedError
            If they cannot be read.
        """
        if self.damaged:
            raise RoundDamagedError(self.number)
        if self.stored is None:
            raise RoundPurgedError(self.number, self.created_at)
        return self.stored
