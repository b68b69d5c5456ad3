"""Chooses the moves of a plan to request now: those of the current wave, and some early ones.

A wave waits for the room that the waves before it free. Few moves need that room, and hosts would
idle whenever the last move of a wave takes long. So moves that wait for nothing are requested
before their turn, in the order of the plan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final
from uuid import UUID

from placement.rebalancing.model import RebalanceLimits
from registry.moves import MoveState, PlanMove

#: Maximum of requested moves, as a multiple of the moves that may go on at once: when one ends, the
#: next can begin. A requested move holds room and blocks power changes of its VM.
_AT_HAND: Final = 2


@dataclass(frozen=True, slots=True)
class ReadyMoves:
    """The moves of a plan that may be requested now, in their order."""

    due: tuple[PlanMove, ...]  #: moves of the first wave that is not over
    early: tuple[PlanMove, ...]  #: moves of later waves; a refused one waits for its turn
    begins: bool  #: whether any move has yet to begin


def select_ready_moves(moves: Sequence[PlanMove], limits: RebalanceLimits) -> ReadyMoves | None:
    """Return the moves of a plan to request now, in their order; None if all are over.

    Notes
    -----
    All moves before an early one are already requested and hold their room. So an early move
    finds its destination as planned if no VM has yet to leave there, and later moves find no
    less room than planned.
    """
    if all(move.is_over for move in moves):
        return None
    requests = _MoveRequests(limits, moves)
    for number, wave in groupby(moves, key=lambda move: move.wave):
        if not requests.take(number, tuple(wave)):
            break
    begins = any(not move.is_over and move.state is not MoveState.MOVING for move in moves)
    return ReadyMoves(tuple(requests.due), tuple(requests.early), begins)


class _MoveRequests:
    """The moves of a plan to request now; few enough per host that each begins soon."""

    def __init__(self, limits: RebalanceLimits, moves: Sequence[PlanMove]) -> None:
        self._limits = limits
        self._first = min(move.wave for move in moves if not move.is_over)
        self._emptying: set[str] = set()  #: hosts that a VM of an earlier wave has yet to leave
        self._moving: set[UUID] = set()  #: VMs of earlier waves with two places
        under_way = [move for move in moves if not move.is_over and move.move_id is not None]
        self._away = Counter(move.from_host for move in under_way)
        self._there = Counter(move.to_host for move in under_way)
        self._under_way = len(under_way)
        self.due: list[PlanMove] = []
        self.early: list[PlanMove] = []

    def take(self, number: int, wave: Sequence[PlanMove]) -> bool:
        """Add the moves of a wave that may be requested; return False if a move is left out."""
        is_early, all_created = number > self._first, True
        for move in wave:
            if move.is_over or move.move_id is not None:
                continue
            waits = move.to_host in self._emptying or move.vm_id in self._moving
            if is_early and (waits or not self._is_next(move)):
                return False
            if waits:
                all_created = False
                continue
            (self.early if is_early else self.due).append(move)
            self._away[move.from_host] += 1
            self._there[move.to_host] += 1
            self._under_way += 1
        leaving = [move for move in wave if not move.is_over or move.leaves]
        self._emptying |= {move.from_host for move in leaving}
        self._moving |= {move.vm_id for move in leaving}
        return all_created

    def _is_next(self, move: PlanMove) -> bool:
        return (
            self._away[move.from_host] < _AT_HAND * self._limits.per_source
            and self._there[move.to_host] < _AT_HAND * self._limits.per_destination
            and self._under_way < _AT_HAND * self._limits.at_once
        )
