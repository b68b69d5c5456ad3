"""The optimal policy: the largest allocation, proven by an integer program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

import numpy as np

from placement.errors import ParameterError
from placement.model.arrays import IntArray
from placement.model.budget import Budget
from placement.model.row_groups import group_rows
from placement.model.snapshot import Allocation, Snapshot
from placement.model.vm_kinds import VmKinds, max_vms_per_request, vm_kinds, vms_that_fit
from placement.packing.buckets import FreeBuckets
from placement.packing.draft import Draft
from placement.packing.drfh_fill import fill_by_best_fit
from placement.packing.first_hosts import FirstHosts
from placement.packing.gangs import admit_request, fill_with_gangs
from placement.packing.overload import room_below_threshold
from placement.parameters import choice_reader, fraction_reader
from placement.policies.optimal.hosts import (
    HostGroup,
    HostsModel,
    PatternHosts,
    PooledHosts,
    SingleHosts,
)
from placement.policies.optimal.integer_program import IntegerProgram, OptimalSolution
from placement.policies.optimal.patterns import maximal_patterns
from placement.policies.optimal.program_columns import (
    PlaceableVms,
    PlacedCounts,
    ProgramColumns,
    assign_to_requests,
)

Objective: TypeAlias = Literal["first_resource", "vms"]
_HostRuleMaker: TypeAlias = Callable[[IntArray, VmKinds], FirstHosts | FreeBuckets]

#: Largest program over classes of hosts; beyond, the problem is refused.
MAX_COLUMNS: Final = 20_000
#: Largest program in which hosts are exact; beyond, only its bound is known.
MAX_EXACT_COLUMNS: Final = 4_000
#: Most combinations of one host that are looked at before it counts one by one.
MAX_PATTERNS: Final = 3_000
#: Nodes of the search trees of one round, all together.
MAX_NODES: Final = 3_000
#: Nodes of one search among allocations that gain equally.
MAX_TIE_NODES: Final = 100
#: Most hosts × kinds.
MAX_PAIRS: Final = 20_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimal:
    """Maximise the placed amount of the first resource, or the number of VMs.

    Notes
    -----
    First the program over classes of hosts, each class as one large host: no
    allocation gains more than its optimum. If its VMs can be packed on the
    single hosts, that is the proof. If not, the program in which every class is
    exact decides (`placement.policies.optimal.hosts` has both, and why).

    Of allocations that gain equally the one of most VMs is taken (of most of
    the first resource where VMs are the objective), so that nothing is left
    out that fits; of requests for the same kind of VM those are served that
    progressive filling would serve first. It is not fair between kinds: a
    tenant of ungainly VMs may get nothing.

    A long search among those is given up (``ties_settled``). The search for the
    optimum is cut after `MAX_NODES` nodes or at the end of the budget; then the
    best that was found counts, greedy answers among it, and ``details`` say how
    far it is from the bound. HiGHS works to 1e-6: where a VM counts more than a
    million units, the optimum is proven to a millionth of the largest VM.
    """

    objective: Objective = "first_resource"
    overload: float = 1.0  #: no host is filled above this part of its capacity

    def place(self, snapshot: Snapshot, rng: np.random.Generator, budget: Budget) -> Allocation:
        """Find the largest allocation; ``budget`` counts combinations and nodes.

        Raises
        ------
        ParameterError
            If the program over classes of hosts has more than `MAX_COLUMNS`
            unknowns.
        """
        del rng  # nothing is random
        return _Optimization(self, snapshot, budget).run()


class _Optimization:
    """The state that the steps of one optimal round share."""

    def __init__(self, policy: Optimal, snapshot: Snapshot, budget: Budget) -> None:
        self.snapshot, self.budget = snapshot, budget
        self.kinds = vm_kinds(snapshot)
        if len(self.kinds) * len(snapshot.free) > MAX_PAIRS:
            raise _limit_error(f"{len(self.kinds) * len(snapshot.free):,} hosts × kinds", MAX_PAIRS)
        self.room = room_below_threshold(snapshot, policy.overload)
        self.placeable = PlaceableVms(
            snapshot=snapshot,
            kinds=self.kinds,
            wanted=max_vms_per_request(snapshot, self.room, self.kinds),
        )
        of_first, vms = self.kinds.demand[:, 0].tolist(), [1] * len(self.kinds)
        self.values: tuple[list[int], list[int]] = (
            (of_first, vms) if policy.objective == "first_resource" else (vms, of_first)
        )
        self.objective = snapshot.resources[0] if self.values[1] is vms else "vms"
        self.groups = _host_groups(snapshot, self.room, self.placeable)
        self.nodes = 0
        self.cuts: list[str] = []
        self.exact_columns = 0
        self.ties_settled = False
        #: the least bound that was proven
        self.bound = sum(
            count * value
            for count, value in zip(self.placeable.by_kind().tolist(), self.values[0], strict=True)
        )

    def run(self) -> Allocation:
        """Solve with pooled classes, then exactly if needed; return the best allocation found."""
        columns = sum(len(group.kinds) for group in self.groups)
        if columns > MAX_COLUMNS:
            raise _limit_error(f"{columns:,} pairs of host class and kind of VM", MAX_COLUMNS)
        best = self._solve_by_classes()
        if not self._is_optimal(best):
            best = max(best, self._solve_exactly(), key=self.gain)
        proven = self._is_optimal(best)
        if not proven:
            best = max(best, self._first_fit_draft(), self._drfh_draft(), key=self.gain)
        self._fill_up(best)
        proven = proven or self._is_optimal(best)
        if proven:
            self.cuts.clear()
        return best.allocation(
            work=self.budget.spent,
            cut=bool(self.cuts),
            details={
                "objective": self.objective,
                "value": self.gain(best),
                "bound": self.bound,
                "proven": proven,
                "ties_settled": proven and self.ties_settled,
                "nodes": self.nodes,
                "exact_columns": self.exact_columns,
                "cuts": list(self.cuts),
            },
        )

    def gain(self, draft: Draft) -> int:
        """Return the objective's value of a draft: amount of the first resource, or VMs."""
        value = self.values[0]
        of_kind = self.kinds.of_request.tolist()
        return sum(
            count * value[of_kind[q]] for q, count in enumerate(draft.placed_counts.tolist())
        )

    def _is_optimal(self, draft: Draft) -> bool:
        """Return whether a draft reaches the proven upper bound."""
        return bool(self.gain(draft) >= self.bound)

    # ------------------------------------------------------------- programs

    def _solve_by_classes(self) -> Draft:
        """Solve with every class of hosts as one large host, and pack the solution."""
        program = IntegerProgram()
        models = [PooledHosts(program, group) for group in self.groups]
        columns = ProgramColumns(program, self.placeable, (s for m in models for s in m.supply()))
        values = self._maximise(program, columns)
        if values is None:
            return self._new_draft()
        wanted = [[values[column] for column in model.columns] for model in models]
        given = columns.read(values)
        one_class, pool = np.zeros(len(self.room), dtype=np.int64), self.snapshot.pool
        rules: tuple[_HostRuleMaker, ...] = (
            lambda room, kinds: FirstHosts(room, one_class[: len(room)], kinds),
            lambda room, kinds: FreeBuckets(room, one_class[: len(room)], pool, kinds),
        )
        return max(
            (self._build_draft(given, _pack_groups(self, wanted, rule)) for rule in rules),
            key=self.gain,
        )

    def _solve_exactly(self) -> Draft:
        """Solve with every host exact, as far as the limits allow."""
        program = IntegerProgram()
        models: list[HostsModel] = []
        for group in self.groups:
            patterns = self._host_patterns(group)
            if patterns is None:
                models.append(SingleHosts(program, group))
            else:
                models.append(PatternHosts(program, group, patterns))
            if len(program) > MAX_EXACT_COLUMNS:
                self.cuts.append(f"size: exact hosts need more than {MAX_EXACT_COLUMNS} unknowns")
                return self._new_draft()
        columns = ProgramColumns(program, self.placeable, (s for m in models for s in m.supply()))
        self.exact_columns = len(program)
        values = self._maximise(program, columns)
        if values is None:
            return self._new_draft()
        on_hosts = self.empty_counts()
        for model in models:
            for host, counts in model.vms_on_hosts(values):
                on_hosts[host, list(counts)] = list(counts.values())
        return self._build_draft(columns.read(values), self._trim_to_room(on_hosts))

    def _host_patterns(self, group: HostGroup) -> Sequence[tuple[int, ...]] | None:
        """Return the maximal combinations of a group's host; None if they are too many."""
        left = self.budget.left
        limit = MAX_PATTERNS if left is None else min(left, MAX_PATTERNS)
        patterns, looked_at = maximal_patterns(group.room, group.demands, group.maximum, limit)
        self.budget.spend(looked_at)
        return patterns

    def _maximise(self, program: IntegerProgram, columns: ProgramColumns) -> Sequence[int] | None:
        """Maximise the objective, then the tie-breaker; return the values found, or None."""
        gains, ties = (columns.gains(len(program), value) for value in self.values)
        values = self._search_optimum(program, gains)
        if values is None:
            return None
        reached = sum(gain * value for gain, value in zip(gains, values, strict=True))
        if any(gains):
            unit = int(np.gcd.reduce(gains))
            entries = [(column, gain / unit) for column, gain in enumerate(gains) if gain]
            program.add_row(entries, minimum=float(reached // unit), maximum=float("inf"))
        better = self._search_tie_breaker(program, ties)
        if better is None:
            return values
        kept = sum(gain * value for gain, value in zip(gains, better, strict=True)) >= reached
        return better if kept else values

    def _search_optimum(
        self, program: IntegerProgram, gains: Sequence[int]
    ) -> Sequence[int] | None:
        """Maximise the objective, and record the proven upper bound."""
        maximum = self._nodes_left()
        if maximum < 1:
            self.cuts.append("nodes: none were left to solve a program")
            return None
        solved = program.solve(gains, maximum)
        self.bound = min(self.bound, solved.bound)
        if self._spend_budget(solved, maximum) == maximum:
            self.cuts.append("nodes: the search ended before the optimum was proven")
        return solved.values

    def _search_tie_breaker(
        self, program: IntegerProgram, gains: Sequence[int]
    ) -> Sequence[int] | None:
        """Maximise the tie-breaker among the optima, within a limit of nodes."""
        maximum = min(self._nodes_left(), MAX_TIE_NODES)
        if maximum < 1:
            self.ties_settled = False
            return None
        solved = program.solve(gains, maximum)
        self.ties_settled = self._spend_budget(solved, maximum) < maximum
        return solved.values

    def _nodes_left(self) -> int:
        """Return how many nodes of the search tree the limit and the budget leave."""
        left = MAX_NODES - self.nodes
        return left if self.budget.left is None else min(left, self.budget.left)

    def _spend_budget(self, solved: OptimalSolution, maximum: int) -> int:
        """Count the nodes of a solved program; return them, at least 1."""
        spent = min(max(1, solved.nodes), maximum)
        self.nodes += spent
        self.budget.spend(spent)
        return spent

    # ------------------------------------------------------------ allocations

    def empty_counts(self) -> IntArray:
        """Return no VMs on any host, shape (H, T)."""
        return np.zeros((len(self.snapshot.free), len(self.kinds)), dtype=np.int64)

    def _new_draft(self) -> Draft:
        """Return an empty draft of the round."""
        return Draft(self.snapshot, self.room)

    def _build_draft(self, given: PlacedCounts, on_hosts: IntArray) -> Draft:
        """Return the draft that places a solution's VMs on hosts."""
        draft = self._new_draft()
        rows = assign_to_requests(self.placeable, given, on_hosts)
        for gang in np.unique(rows[:, 0][draft.not_begun[rows[:, 0]] > 0]).tolist():
            draft.begin_gang(gang)
        draft.put_all(rows)
        return draft

    def _trim_to_room(self, on_hosts: IntArray) -> IntArray:
        """Remove VMs from hosts that rounding overfilled."""
        demand = self.kinds.demand
        for host in np.flatnonzero((on_hosts @ demand > self.room).any(axis=1)).tolist():
            for kind in np.argsort(self.values[0], kind="stable").tolist():
                while on_hosts[host, kind] and (on_hosts[host] @ demand > self.room[host]).any():
                    on_hosts[host, kind] -= 1
        return on_hosts

    def _first_fit_draft(self) -> Draft:
        """Place requests in order, on the first hosts."""
        draft = self._new_draft()
        first = FirstHosts(self.room, self.snapshot.host_class, self.kinds)
        for request in np.flatnonzero(self.placeable.wanted).tolist():
            if admit_request(draft, request):
                kind, wanted = int(self.kinds.of_request[request]), int(draft.remaining[request])
                hosts = first.fill([kind] * min(wanted, int(self.placeable.wanted[request])))
                rows = [(request, host, 1) for host in hosts]
                draft.put_all(np.array(rows, dtype=np.int64).reshape(-1, 3))
        return draft

    def _drfh_draft(self) -> Draft:
        """Return a draft by Best-Fit DRFH alone, in case no better one is found."""
        draft = self._new_draft()
        self._fill_up(draft)
        return draft

    def _fill_up(self, draft: Draft) -> None:
        """Place the VMs that still fit; after an optimum none do."""
        fill_with_gangs(draft, lambda: fill_by_best_fit(draft, self.kinds))


def _pack_groups(
    search: _Optimization, wanted: Sequence[Sequence[int]], rule: _HostRuleMaker
) -> IntArray:
    """Pack each group's VMs on its hosts by a rule, the largest kinds first, shape (H, T)."""
    on_hosts = search.empty_counts()
    for group, counts in zip(search.groups, wanted, strict=True):
        room = search.room[group.hosts]
        kinds = VmKinds(
            np.array(group.demands, dtype=np.int64),
            np.ones((len(group.kinds), 1), dtype=np.bool_),
            np.arange(len(group.kinds)),
        )
        packing = rule(room, kinds)
        size = (kinds.demand / np.maximum(room[0], 1)).max(axis=1)
        for kind in np.argsort(-size, kind="stable").tolist():
            hosts = packing.fill([kind] * counts[kind])
            np.add.at(on_hosts, (group.hosts[hosts], group.kinds[kind]), 1)
    return on_hosts


def _host_groups(snapshot: Snapshot, room: IntArray, placeable: PlaceableVms) -> list[HostGroup]:
    """Return the groups of hosts that are alike and hold something that is wanted."""
    kinds, wanted = placeable.kinds, placeable.by_kind()
    same = group_rows(room, snapshot.host_class)
    rooms, host_class, members = room[same.first], snapshot.host_class[same.first], same.members()
    fits = np.zeros((len(same), len(kinds)), dtype=np.int64)
    for kind in np.flatnonzero(wanted).tolist():
        open_to = kinds.eligible[kind, host_class]
        fit = np.minimum(vms_that_fit(rooms, kinds.demand[kind]), wanted[kind])
        fits[:, kind] = np.where(open_to, fit, 0)
    groups = []  # in order of their first hosts, so that the columns follow the hosts
    for number in np.flatnonzero(fits.any(axis=1)).tolist():
        inside = np.flatnonzero(fits[number]).tolist()
        groups.append(
            HostGroup(
                hosts=members[number],
                room=tuple(rooms[number].tolist()),
                kinds=tuple(inside),
                demands=tuple(map(tuple, kinds.demand[inside].tolist())),
                maximum=tuple(fits[number, inside].tolist()),
            )
        )
    return groups


#: What may be set on it.
READERS: Final = {"objective": choice_reader(get_args(Objective)), "overload": fraction_reader}


def _limit_error(found: str, maximum: int) -> ParameterError:
    """Return the error for a round that is too large for the optimal policy."""
    return ParameterError("policy", f"optimal with {found}", f"at most {maximum:,} for optimal")
