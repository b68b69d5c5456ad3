"""A sequence of moves in waves, so that every host sees its moves in their order."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Sequence

from placement.rebalancing.local_search.group_constraints import GroupConstraints
from placement.rebalancing.model import RebalanceLimits, RebalanceMove, RunningState


def schedule_waves(
    running: RunningState,
    group_constraints: GroupConstraints,
    moves: Sequence[RebalanceMove],
    limits: RebalanceLimits,
) -> tuple[RebalanceMove, ...]:
    """Assign each move of a plan to its earliest feasible wave; return them in order of waves.

    Parameters
    ----------
    group_constraints : GroupConstraints
        Knows which VMs are bound to others; their hosts play no part.
    moves : sequence of Move
        One VM after the other, each once; feasible in this order. Their waves are
        not looked at.

    Returns
    -------
    tuple of Move
        The same. Moves of one host, to it or away, keep their order (within a wave,
        their order in the answer), so each changes the costs of its hosts by what it did
        in the sequence. Moves of VMs that a group or a spread binds to one another go in
        waves of their own, in order, so a rule sees what it saw in the sequence. A
        destination never needs what the same wave frees.

    Notes
    -----
    `placement.rebalancing.waves.order_in_waves` looks for any order that leads to given places,
    with detours. Here the order is known, and what each move gains hangs on it.
    """
    return tuple(
        sorted(
            _WaveScheduler(running, group_constraints, limits).schedule_moves(moves),
            key=lambda move: move.wave,
        )
    )


class _WaveScheduler:
    """Finds the wave of each move, one move after the other."""

    def __init__(
        self, running: RunningState, group_constraints: GroupConstraints, limits: RebalanceLimits
    ) -> None:
        self._running, self._group_constraints, self._limits = running, group_constraints, limits
        self._room: dict[int, list[int]] = {}  # with all departures that are over already
        self._leaves: dict[int, list[tuple[int, list[int]]]] = defaultdict(list)
        self._last_of_host: dict[int, int] = {}
        self._last_of_rule: dict[tuple[str, int], int] = {}
        self._away: dict[tuple[int, int], int] = defaultdict(int)
        self._there: dict[tuple[int, int], int] = defaultdict(int)
        self._at_once: list[int] = []
        self._next_open: list[int] = []  # of a full wave, one that may not be

    def schedule_moves(self, moves: Sequence[RebalanceMove]) -> list[RebalanceMove]:
        """Return the moves with their waves."""
        return [dataclasses.replace(move, wave=self._wave_of(move)) for move in moves]

    def _wave_of(self, move: RebalanceMove) -> int:
        """Return the wave of a move, and record it there."""
        source, destination = move.source, move.destination
        rules = self._group_constraints.rules_of(move.vm)
        wave = max(
            self._last_of_host.get(source, 0),
            self._last_of_host.get(destination, 0),
            *(self._last_of_rule.get(rule, -1) + 1 for rule in rules),
        )
        demand = self._running.demand[self._running.kind[move.vm]].tolist()
        wave = max(wave, self._first_wave_with_room(destination, demand))
        wave = self._open_wave(wave)
        while (
            self._away[source, wave] >= self._limits.per_source
            or self._there[destination, wave] >= self._limits.per_destination
        ):
            wave = self._open_wave(wave + 1)
        self._record_move(move, wave, demand)
        for rule in rules:
            self._last_of_rule[rule] = wave
        return wave

    def _first_wave_with_room(self, host: int, demand: list[int]) -> int:
        """Return the first wave before which enough VMs have left a move's destination.

        Every move to the host that comes earlier in the sequence goes in that wave or
        earlier, so its room counts as taken.
        """
        room = list(self._room_of_host(host))
        wave, leaves = 0, self._leaves[host]
        for when, amounts in leaves:  # in order of waves
            if _has_room(room, demand):
                break
            room = [left + amount for left, amount in zip(room, amounts, strict=True)]
            wave = when + 1
        return wave

    def _record_move(self, move: RebalanceMove, wave: int, demand: list[int]) -> None:
        """Record a move in its wave: the room it takes and frees, and the limits."""
        room = self._room_of_host(move.destination)
        for resource, amount in enumerate(demand):
            room[resource] -= amount
        self._leaves[move.source].append((wave, demand))
        for host in (move.source, move.destination):
            self._last_of_host[host] = wave
        self._away[move.source, wave] += 1
        self._there[move.destination, wave] += 1
        self._at_once[wave] += 1
        if self._at_once[wave] >= self._limits.at_once:
            self._next_open[wave] = wave + 1

    def _room_of_host(self, host: int) -> list[int]:
        """Return the room of a host, which is updated as moves are scheduled."""
        if host not in self._room:
            self._room[host] = self._running.room[host].tolist()
        return self._room[host]

    def _open_wave(self, wave: int) -> int:
        """Return the first wave from ``wave`` on with fewer moves than the site's limit."""
        while True:
            while len(self._at_once) <= wave:
                self._next_open.append(len(self._at_once))
                self._at_once.append(0)
            after = self._next_open[wave]
            if after == wave:
                return wave
            # Later look-ups find a shorter path.
            while len(self._at_once) <= after:
                self._next_open.append(len(self._at_once))
                self._at_once.append(0)
            self._next_open[wave] = self._next_open[after]
            wave = after


def _has_room(room: list[int], demand: list[int]) -> bool:
    """Return whether room holds a demand."""
    return all(amount <= left for left, amount in zip(room, demand, strict=True) if amount)
