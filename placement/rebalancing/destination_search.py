"""Find destinations for many units at once."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from placement.fairness.levels import relative_weights
from placement.fairness.shares import fractions_of_pool
from placement.model.budget import Budget
from placement.rebalancing.destinations import DestinationCriterion, Destinations
from placement.rebalancing.integer_program import possible_pairs, solve_destinations
from placement.rebalancing.placement_state import PlacementState
from placement.rebalancing.units import MoveUnit

#: Pairs of unit and host beyond which the solver is not used.
MAX_PAIRS: Final = 20_000


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SearchLimits:
    """Limits of the search for destinations."""

    tries: int = 30  #: orders tried, as long as some unit has no destination
    pairs: int = MAX_PAIRS  #: of unit and host: on larger cases the solver is not used
    ranking: tuple[int, ...] = (0, 1)  #: indices of R that skewness runs over
    partly: bool = True  #: where not all fit, are units chosen by need?


@dataclass(slots=True, eq=False)
class UnitDestinations:
    """Destinations of units; units without one are not in ``hosts``."""

    hosts: dict[int, int]  #: unit to host, in the order in which they were placed
    tries: int = 0
    cut: bool = False
    #: "not used", "too large", "all placed", "proven" (not all fit), "cut" (nothing proven)
    solver: str = "not used"
    hopeless: set[int] = field(default_factory=set)  #: units that no order helps


def find_destinations(
    where: PlacementState,
    units: Sequence[MoveUnit],
    *,
    rng: np.random.Generator,
    budget: Budget,
    search: SearchLimits,
    by: Mapping[DestinationCriterion, Destinations] | None = None,
) -> UnitDestinations:
    """Find a host for every moving unit or, if not all fit, for those of the neediest tenants.

    ``where`` is left as it was; ``by`` are its destinations, where they are known.

    The first try takes the units with the fewest hosts first; ties go to the largest unit. It
    gives each the host of most utility (`DestinationCriterion.UTILITY`). As long as one has no
    place, further tries pack as tightly as they can and take those first that had
    none; then, on small cases, an integer program is solved. If still not all fit,
    the tenant goes first that would be left with the least dominant share per
    weight.
    """
    return _DestinationFinder(where, units, rng, budget, search, by=by).find()


class _DestinationFinder:
    """Searches destinations for the units of a plan, in different orders."""

    def __init__(
        self,
        where: PlacementState,
        units: Sequence[MoveUnit],
        rng: np.random.Generator,
        budget: Budget,
        search: SearchLimits,
        *,
        by: Mapping[DestinationCriterion, Destinations] | None,
    ) -> None:
        self._where = where
        self._units = units
        self._homes = [where.host[unit.vms[0]] for unit in units]
        self._rng = rng
        self._budget = budget
        self._search = search
        self._cut = False
        self._by = by or {
            each: Destinations(where, each, search.ranking) for each in DestinationCriterion
        }

    def find(self) -> UnitDestinations:
        """Try orders of units, then the solver, then the neediest tenants."""
        hardest_first = self._order_by_difficulty()
        found = UnitDestinations(
            hosts=self._try_order(hardest_first, DestinationCriterion.UTILITY),
            tries=1,
            cut=self._cut,
        )
        if self._cut or len(found.hosts) == len(self._units):
            return found
        found.hopeless = {
            number
            for number in hardest_first
            if number not in found.hosts and not self._fits_anywhere(self._units[number])
        }
        if found.hopeless and not self._search.partly:
            return found
        possible = [number for number in hardest_first if number not in found.hopeless]
        if len(possible) > len(found.hosts):
            hosts = self._retry_failed_first(possible, found)
            if hosts is None and not self._cut:
                hosts = self._solve_exactly(possible, found)
            if hosts is None and not self._cut and self._search.partly:
                hosts = self._place_neediest(possible)
            if hosts is not None and not self._cut:
                found.hosts = hosts
        found.cut = self._cut
        return found

    def _order_by_difficulty(self) -> list[int]:
        """Return the units by number of possible destinations, fewest first, then by size."""
        capacity = self._where.running.snapshot.capacity
        largest = np.maximum(capacity.max(axis=0, initial=0), 1)
        keys = []
        for number, unit in enumerate(self._units):
            hosts = int(self._where.open_to(unit.eligible).sum())
            if unit.hosts is not None:
                hosts = min(hosts, len(unit.hosts))
            free = not any(map(self._where.is_ruled, unit.vms))
            size = float((unit.demand / largest).max())
            # A few hosts more or less matter where there are few.
            keys.append((hosts.bit_length(), free, -size, number))
        return [key[-1] for key in sorted(keys)]

    def _fits_anywhere(self, unit: MoveUnit) -> bool:
        """Return whether a unit has room on any host that it may use, as things are."""
        demanded = unit.demand > 0
        open_to = self._where.open_to(unit.eligible)
        if unit.hosts is not None:
            open_to = open_to & np.isin(np.arange(len(open_to)), unit.hosts)
        room = self._where.room[open_to][:, demanded]
        return bool((room >= unit.demand[demanded]).all(axis=1).any())

    def _try_order(self, order: Sequence[int], choice: DestinationCriterion) -> dict[int, int]:
        """Place the units in this order; return their hosts, and undo the moves."""
        hosts: dict[int, int] = {}
        for number in order:
            self._place_unit(number, choice, hosts)
        self._undo_moves(hosts)
        return hosts

    def _place_unit(self, number: int, choice: DestinationCriterion, hosts: dict[int, int]) -> bool:
        """Move a unit to its best host and record it; return False if it has none."""
        if self._cut:
            return False
        by, unit = self._by[choice], self._units[number]
        before = by.weighed
        host = by.choose_host(unit)
        if not self._budget.spend(by.weighed - before):
            self._cut = True
            return False
        if host is None:
            return False
        hosts[number] = host
        self._where.move(unit.vms, host)
        return True

    def _undo_moves(self, hosts: Mapping[int, int]) -> None:
        """Move all placed units back to their hosts."""
        for number in reversed(list(hosts)):
            self._where.move(self._units[number].vms, self._homes[number])

    def _retry_failed_first(
        self, possible: Sequence[int], found: UnitDestinations
    ) -> dict[int, int] | None:
        """Try orders in which the units without a destination go first, until all have one.

        Notes
        -----
        "Squeaky wheel" optimisation (Joslin and Clements, 1999): a unit that fails
        moves forward. In addition, every other order is drawn at random.
        """
        order = list(possible)
        missed = {number for number in possible if number not in found.hosts}
        while found.tries < self._search.tries:
            order = [n for n in order if n in missed] + [n for n in order if n not in missed]
            found.tries += 1
            hosts = self._try_order(order, DestinationCriterion.TIGHTEST)
            if self._cut or len(hosts) == len(possible):
                return None if self._cut else hosts
            new = {number for number in possible if number not in hosts}
            if new == missed or found.tries % 2 == 0:
                order = [order[place] for place in self._perturbed_order(len(order))]
            missed = new
        return None

    def _perturbed_order(self, number: int) -> list[int]:
        """Return an order of units in which each is shifted at random, by about a third at most."""
        keys = np.arange(number) + self._rng.random(number) * (number / 3 + 1)
        shaken: list[int] = np.argsort(keys, kind="stable").tolist()
        return shaken

    def _solve_exactly(
        self, possible: Sequence[int], found: UnitDestinations
    ) -> dict[int, int] | None:
        """Solve a small case by an integer program; return None if not all units get a host."""
        units = [self._units[number] for number in possible]
        hosts = len(self._where.room)
        if len(units) * hosts > self._search.pairs:
            found.solver = "too large"
            return None
        if not self._budget.spend(len(units) * hosts):
            self._cut = True
            return None
        solved = solve_destinations(self._where, units, possible_pairs(self._where, units))
        if solved is None or not (solved.proven or len(solved.hosts) == len(units)):
            found.solver = "cut"
            return None
        if len(solved.hosts) < len(units):
            found.solver = "proven"
            return None
        found.solver = "all placed"
        return {possible[number]: host for number, host in solved.hosts.items()}

    def _place_neediest(self, possible: Sequence[int]) -> dict[int, int]:
        """Place units by progressive filling over tenants; return the host of each placed unit.

        The next unit is of the tenant with the lowest dominant share per weight. Units without a
        destination yet are not counted in the share. The moves are undone before it returns.
        """
        running = self._where.running
        snapshot = running.snapshot
        kept = snapshot.held.copy()
        queues: dict[int, deque[int]] = {}
        for number in possible:
            queues.setdefault(int(running.tenant[self._units[number].vms[0]]), deque()).append(
                number
            )
        for unit in self._units:
            kept[running.tenant[unit.vms[0]]] -= unit.demand
        weight = relative_weights(snapshot.weight)

        def level(tenant: int) -> float:
            """Return the level of a tenant: its dominant share per weight."""
            parts = fractions_of_pool(kept[tenant], snapshot.pool)
            return float(parts.max(initial=0.0)) / float(weight[tenant])

        heap = [(level(tenant), tenant) for tenant in queues]
        heapq.heapify(heap)
        hosts: dict[int, int] = {}
        while heap:
            _, tenant = heapq.heappop(heap)
            queue = queues[tenant]
            while queue:
                number = queue.popleft()
                if self._place_unit(number, DestinationCriterion.TIGHTEST, hosts):
                    kept[tenant] += self._units[number].demand
                    break
            if queue:
                heapq.heappush(heap, (level(tenant), tenant))
        self._undo_moves(hosts)
        return hosts
