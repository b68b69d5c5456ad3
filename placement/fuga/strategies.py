"""Sources of the players' strategies: search, or given lists."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias

import numpy as np

from placement.errors import ParameterError
from placement.fuga.combinations.combination_cache import CombinationFinder
from placement.fuga.combinations.top_combinations import POOL, Combinations
from placement.fuga.players import Player, Players
from placement.model.arrays import FloatArray, IntArray
from placement.model.budget import Budget
from placement.model.snapshot import Snapshot
from placement.model.vm_kinds import VmKinds

#: Alike players whose strategies are drawn together when one player's are needed.
_RETRY_LATER: Final = 16

#: Combinations that are found for all queries of one batch, beyond the least.
_POOLS: Final = 2_000

#: VMs of each kind.
Counts: TypeAlias = tuple[int, ...]


@dataclass(slots=True, eq=False)  # frozen, it would take three times as long to make one
class Strategies:
    """The combinations that a player weighs; ties go to the earlier one.

    The fields are plain lists, as there are few and one player is weighed at a time. They are
    never changed.
    """

    rows: list[Counts]  #: (K, T) VMs of each kind
    score: list[float]  #: (K,) minimum utilization
    skewness: list[float]  #: (K,) ske(m) with what runs on the host already

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def counts(self) -> IntArray:
        """VMs of each kind, shape (K, T)."""
        return np.array(self.rows, dtype=np.int64)

    def with_strategy_of(self, others: Strategies, which: int) -> Strategies:
        """Return these strategies of a player with one more appended."""
        return Strategies(
            [*self.rows, others.rows[which]],
            [*self.score, others.score[which]],
            [*self.skewness, others.skewness[which]],
        )


@dataclass(slots=True, eq=False)
class PlayerStrategies:
    """The strategies of many players, drawn from pools that alike hosts share.

    Most players are only processed in batches, so the lists of one player are made at its turn.
    """

    pools: list[Strategies]
    pool: IntArray  #: (P,) of which each player draws, -1 for nothing at all
    places: IntArray  #: (P, K) its strategies in that pool, -1 after the last
    _own: list[tuple[int, list[int]]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.pool)

    def __getitem__(self, player: int) -> Strategies:
        if not self._own:  # in lists: one after another, nearly every player's
            self._own.extend(zip(self.pool.tolist(), self.places.tolist(), strict=True))
        number, places = self._own[player]
        if number < 0:
            return Strategies([], [], [])
        pool = self.pools[number]
        if places[-1] < 0:
            places = [place for place in places if place >= 0]
        return Strategies(
            [pool.rows[place] for place in places],
            [pool.score[place] for place in places],
            [pool.skewness[place] for place in places],
        )

    @property
    def counts(self) -> IntArray:
        """The number of strategies of each player, shape (P,)."""
        counts: IntArray = (self.places >= 0).sum(axis=1)
        return counts

    def lowest_score(self) -> FloatArray:
        """Return the lowest utilization among each player's strategies, (P,); inf without any."""
        scores = np.array([each for pool in self.pools for each in pool.score] or [np.inf])
        own = np.where(self.places >= 0, scores[self.pool_numbers()], np.inf)
        minimum: FloatArray = own.min(axis=1, initial=np.inf)
        return minimum

    def pool_numbers(self) -> IntArray:
        """Return the players' strategies as indices into all pools, one pool after another.

        Shape (P, K); a player with fewer repeats its first.
        """
        starts = np.cumsum([0, *(len(pool) for pool in self.pools)])
        own = np.where(self.places >= 0, self.places, self.places[:, :1])
        numbered: IntArray = np.maximum(own + starts[self.pool][:, None], 0)
        return numbered

    def take(self, which: IntArray) -> PlayerStrategies:
        """Return the strategies of the players at some indices, shape (X,), in that order."""
        return PlayerStrategies(self.pools, self.pool[which], self.places[which])


class StrategySource(Protocol):
    """Finds the strategies of a player when ``left`` VMs of each kind, shape (T,), are left."""

    def strategies(self, player: Player, left: IntArray) -> Strategies:
        """Return a player's strategies, at least one if any combination fits ``left``, (T,)."""
        ...

    def strategies_of_all(self, players: Players, left: IntArray) -> PlayerStrategies:
        """Return the strategies of many players in one batch; ``left`` has shape (T,)."""
        ...


def skewness(used: IntArray, capacity: IntArray) -> FloatArray:
    """Return FUGA's skewness ske(m) of hosts, shape (...).

    Parameters
    ----------
    used : ndarray of int64, shape (..., J)
        Amount of each ranking resource that running and chosen VMs use.
    capacity : ndarray of int64, shape (..., J)

    Notes
    -----
    ``ske(m) = sqrt(sum_j (u_j/mean(u) - 1)^2)`` over the ranking resources, with
    ``u_j = (running_j + chosen_j) / C_j``; 0 for an unused host.
    """
    parts = used / capacity
    mean = parts.mean(axis=-1, keepdims=True)
    relative = np.divide(parts, mean, out=np.ones_like(parts), where=mean > 0)
    skew: FloatArray = np.sqrt(((relative - 1) ** 2).sum(axis=-1))
    return skew


def strategies_with_scores(
    player: Player, rows: Sequence[Counts], demand: IntArray, ranking: IntArray
) -> Strategies:
    """Return combinations (K, T) as strategies of a player, with scores and skewness."""
    amounts = (np.array(rows, dtype=np.int64).reshape(-1, len(demand)) @ demand)[:, ranking]
    capacity, free = player.capacity[ranking], player.free[ranking]
    return Strategies(
        list(rows),
        (amounts / free).min(axis=1).tolist(),
        skewness(capacity - free + amounts, capacity).tolist(),
    )


class TopCombinations:
    """Strategies by search: the best combinations by minimum utilization.

    Hosts with the same query, of equal capacity, free vector, room and
    VMs that could be used, share its answer and draw from it.
    """

    def __init__(
        self,
        demand: IntArray,
        ranking: IntArray,
        eta: int,
        rng: np.random.Generator,
        budget: Budget,
    ) -> None:
        self._demand = demand
        self._ranking = ranking
        self._eta = eta
        self._rng = rng
        self._budget = budget
        self._known: dict[bytes, Strategies] = {}
        self._drawn: dict[tuple[bytes, Counts], Iterator[Strategies]] = {}
        self._questions: CombinationFinder | None = None
        self._largest = np.zeros(0, dtype=np.int64)
        self._kept = 0
        self.cut = 0  #: queries whose answer was cut

    def reserve_budget(self, units: int) -> None:
        """Reserve budget units for playing the game, at most half; searches use the rest."""
        self._kept = 0 if self._budget.left is None else min(units, self._budget.left // 2)

    def strategies(self, player: Player, left: IntArray) -> Strategies:
        """Return the ``eta`` best combinations within ``left``, (T,); ties are in random order.

        Returns no strategy once only the reserved budget is left: the player does not play.
        """
        maximum = tuple(map(min, player.fits.tolist(), left.tolist()))
        if not any(maximum):  # towards the end of a game that is nearly every player
            return Strategies([], [], [])
        host = player.capacity.tobytes() + player.free.tobytes() + player.room.tobytes()
        waiting = self._drawn.get((host, maximum), iter(()))
        own = next(waiting, None)
        if own is None:
            # A player without strategies, because VMs ran out, is followed by alike ones.
            alike = Players(
                *(
                    np.repeat(np.asarray(each)[None], _RETRY_LATER, axis=0)
                    for each in (
                        player.host,
                        player.capacity,
                        player.free,
                        player.room,
                        player.fits,
                    )
                )
            )
            waiting = self._drawn[host, maximum] = reversed(self.strategies_of_all(alike, left))
            own = next(waiting)
        return own

    def strategies_of_all(self, players: Players, left: IntArray) -> PlayerStrategies:
        """Return the strategies of many players when ``left`` VMs of each kind, (T,), are left."""
        strategies = PlayerStrategies(
            [],
            np.full(len(players), -1, dtype=np.int64),
            np.full((len(players), self._eta), -1, dtype=np.int64),
        )
        if not len(players):
            return strategies
        serving = self._finder_for(players.room.max(axis=0))
        # Queries that differ only in what does not fit are the same.
        requested = np.concatenate(
            [players.capacity, players.free, players.room, np.minimum(players.fits, left)], axis=1
        )
        queries = requested.view(f"V{requested.shape[1] * requested.itemsize}").ravel().tolist()
        places_of: dict[bytes, list[int]] = {}
        for place, query in enumerate(queries):
            places_of.setdefault(query, []).append(place)
        # Enough alternatives that like hosts differ, and in all no more than are of use.
        enough = max(2 * self._eta, _POOLS // len(places_of))
        # Of each query the place of its first player, and the answer.
        found: dict[bytes, tuple[int, Combinations]] = {}
        of_pool: list[bytes] = []
        for query, places in places_of.items():
            if query in self._known:
                score = np.array(self._known[query].score)
            else:
                pool = min(POOL, self._eta * len(places), enough)
                answer = self._search_combinations(serving, players[places[0]], left, pool)
                if answer is None:
                    continue
                found[query], score = (places[0], answer), answer.score
            if len(score):
                drawn = self._draw_best(score, len(places))
                strategies.pool[places] = len(of_pool)
                strategies.places[places, : drawn.shape[1]] = drawn
                of_pool.append(query)
        if found:
            self._store_strategies(found, players)
        strategies.pools.extend(self._known[query] for query in of_pool)
        return strategies

    def _finder_for(self, largest: IntArray) -> CombinationFinder:
        """Return a finder of combinations for rooms up to the largest."""
        if self._questions is None or (largest > self._largest).any():
            self._largest = largest
            self._questions = CombinationFinder(
                self._demand, self._ranking, self._eta, largest, self._budget
            )
        return self._questions

    def _search_combinations(
        self, finder: CombinationFinder, player: Player, left: IntArray, pool: int
    ) -> Combinations | None:
        """Return a player's best combinations; None once only the reserved budget is left."""
        if self._budget.left is not None and self._budget.left <= self._kept:
            self.cut += 1
            return None
        found = finder.find(
            free=player.free,
            room=player.room,
            fits=player.fits,
            maximum=np.minimum(player.fits, left),
            pool=pool,
        )
        self.cut += found.cut
        return found

    def _store_strategies(
        self, found: Mapping[bytes, tuple[int, Combinations]], players: Players
    ) -> None:
        """Store the found combinations as strategies; scores are computed in one batch."""
        counts = np.concatenate([answer.counts for _, answer in found.values()])
        lengths = [len(answer.counts) for _, answer in found.values()]
        places = np.repeat([place for place, _ in found.values()], lengths)
        amounts = (counts @ self._demand)[:, self._ranking]
        capacity = players.capacity[places][:, self._ranking]
        running = capacity - players.free[places][:, self._ranking]
        skew = skewness(running + amounts, capacity).tolist()
        rows = [tuple(row) for row in counts.tolist()]
        stops = np.cumsum(lengths).tolist()
        for (query, (_, answer)), length, stop in zip(found.items(), lengths, stops, strict=True):
            own = slice(stop - length, stop)
            self._known[query] = Strategies(rows[own], answer.score.tolist(), skew[own])

    def _draw_best(self, score: FloatArray, number: int) -> IntArray:
        """Return the indices of ``eta`` best strategies per player; ties are in random order."""
        shuffled = self._rng.random((number, len(score)))
        # Scores are sorted by, then the random numbers.
        order = np.lexsort((shuffled, np.broadcast_to(-score, shuffled.shape)))
        return np.asarray(order[:, : self._eta])


class GivenStrategies:
    """Strategies given for some hosts, for studies; the others search.

    Parameters
    ----------
    given : mapping
        Combinations, shape (K, T), of each host.
    others : StrategySource
    """

    def __init__(
        self,
        given: Mapping[int, IntArray],
        others: StrategySource,
        demand: IntArray,
        ranking: IntArray,
    ) -> None:
        self._given = given
        self._others = others
        self._demand = demand
        self._ranking = ranking

    def strategies(self, player: Player, left: IntArray) -> Strategies:
        """Return the given strategies that still fit, clipped to ``left``, shape (T,)."""
        given = self._given.get(player.host)
        if given is None:
            return self._others.strategies(player, left)
        clipped = np.minimum(given, left)
        fits = (clipped @ self._demand <= player.room).all(axis=1) & clipped.any(axis=1)
        rows = [tuple(row) for row in clipped[fits].tolist()]
        return strategies_with_scores(player, rows, self._demand, self._ranking)

    def strategies_of_all(self, players: Players, left: IntArray) -> PlayerStrategies:
        """Return the strategies of many players when ``left`` VMs of each kind, (T,), are left."""
        is_given = np.isin(players.host, list(self._given))
        searched = self._others.strategies_of_all(players.take(np.flatnonzero(~is_given)), left)
        found = [
            self.strategies(players[place], left) for place in np.flatnonzero(is_given).tolist()
        ]
        width = max([searched.places.shape[1], *(len(each) for each in found)])
        strategies = PlayerStrategies(
            [*searched.pools, *found],
            np.full(len(players), -1, dtype=np.int64),
            np.full((len(players), width), -1, dtype=np.int64),
        )
        strategies.pool[~is_given] = searched.pool
        strategies.places[~is_given, : searched.places.shape[1]] = searched.places
        for number, place in enumerate(np.flatnonzero(is_given).tolist()):
            if len(found[number]):
                strategies.pool[place] = len(searched.pools) + number
                strategies.places[place, : len(found[number])] = np.arange(len(found[number]))
        return strategies


def given_strategies_by_kind(
    snapshot: Snapshot,
    kinds: VmKinds,
    room: IntArray,
    strategies: Mapping[int, tuple[tuple[int, ...], ...]],
) -> dict[int, IntArray]:
    """Return the given strategies of hosts, counts per request (Q,), as counts per kind (T,).

    ``room`` is what each host may still take, shape (H, R).

    Raises
    ------
    ParameterError
        For a host or a request that does not exist, or a combination that the
        host may not or cannot hold.
    """
    requests = len(snapshot.count)
    read = {}
    for host, rows in strategies.items():
        if host >= len(snapshot.free):
            raise ParameterError(f"strategies.{host}", host, f"a host below {len(snapshot.free)}")
        by_kind = np.zeros((len(rows), len(kinds)), dtype=np.int64)
        for number, row in enumerate(rows):
            place = f"strategies.{host}[{number}]"
            if len(row) != requests:
                raise ParameterError(place, list(row), f"{requests} counts, one per request")
            takes = [0] * len(snapshot.resources)
            for request, count in enumerate(row):
                if count and not snapshot.eligible[request, snapshot.host_class[host]]:
                    raise ParameterError(place, list(row), f"no request closed to host {host}")
                for resource, amount in enumerate(snapshot.demand[request].tolist()):
                    takes[resource] += count * amount
            if any(a > b for a, b in zip(takes, room[host].tolist(), strict=True)):
                raise ParameterError(place, list(row), f"what fits in {room[host].tolist()}")
            # In Python's integers: a count of something that takes nothing may be huge.
            for request, count in enumerate(row):
                by_kind[number, kinds.of_request[request]] += min(
                    count, int(snapshot.count[request])
                )
        read[host] = by_kind
    return read
