"""PS-DSF as the paper says it, event by event in exact arithmetic: the oracle of the fast form."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from placement.mechanisms.model import DivisibleProblem

Amounts = Sequence[Fraction | None]  #: None: without bound


class PlainPsdsf:
    """Servers that fill up tenant by tenant and event by event."""

    def __init__(self, problem: DivisibleProblem) -> None:
        exact = [[Fraction(float(each)) for each in row] for row in problem.demand]
        tenants, classes = problem.eligible.shape
        self.tenants, self.classes = range(tenants), range(classes)
        self.resources = range(len(problem.resources))
        self.demand = [
            [
                [need / Fraction(float(problem.speed[i, k])) for need in exact[i]]
                for k in self.classes
            ]
            for i in self.tenants
        ]
        self.free = [[Fraction(float(each)) for each in row] for row in problem.free]
        self.weight = [Fraction(float(each)) for each in problem.weight]
        self.count = [
            None if each == float("inf") else Fraction(float(each)) for each in problem.count
        ]
        self.gamma = [
            [
                min(
                    (
                        Fraction(float(problem.capacity[k, r])) / self.demand[i][k][r]
                        for r in self.resources
                        if exact[i][r] > 0
                    ),
                    default=Fraction(0),
                )
                if problem.eligible[i, k]
                else Fraction(0)
                for k in self.classes
            ]
            for i in self.tenants
        ]
        self.held = [
            max(
                (
                    Fraction(float(problem.held[i, r])) / exact[i][r]
                    for r in self.resources
                    if exact[i][r] > 0
                ),
                default=Fraction(0),
            )
            for i in self.tenants
        ]

    def fill(self, server: int, elsewhere: Sequence[float | Fraction]) -> list[Fraction]:
        """Return the tasks on one server, given those on the others."""
        elsewhere = [Fraction(each) for each in elsewhere]
        here = [Fraction(0) for _ in self.tenants]
        free = list(self.free[server])
        live = {
            i
            for i in self.tenants
            if self.gamma[i][server] > 0 and (self.count[i] is None or elsewhere[i] < self.count[i])
        }

        def level(i: int) -> Fraction:
            return (self.held[i] + elsewhere[i] + here[i]) / (
                self.weight[i] * self.gamma[i][server]
            )

        while live:
            spent = {r for r in self.resources if free[r] == 0}
            live = {i for i in live if not any(self.demand[i][server][r] for r in spent)}
            live = {
                i for i in live if self.count[i] is None or elsewhere[i] + here[i] < self.count[i]
            }
            if not live:
                break
            least = min(level(i) for i in live)
            lowest = [i for i in sorted(live) if level(i) == least]
            rate = {i: self.weight[i] * self.gamma[i][server] for i in lowest}
            steps = [level(i) - least for i in live if i not in rate]
            steps += [
                (self.count[i] - elsewhere[i] - here[i]) / rate[i]
                for i in lowest
                if self.count[i] is not None
            ]
            for r in self.resources:
                requested = sum(rate[i] * self.demand[i][server][r] for i in lowest)
                if requested > 0:
                    steps.append(free[r] / requested)
            rise = min(steps)
            for i in lowest:
                here[i] += rise * rate[i]
                for r in self.resources:
                    free[r] -= rise * rate[i] * self.demand[i][server][r]
        return here

    def sweeps(self, rounds: int) -> list[list[Fraction]]:
        """Return the matrix after some sweeps, from DRF on each server; counts unbounded."""
        nothing = [Fraction(0) for _ in self.tenants]
        columns = [self.fill(k, nothing) for k in self.classes]
        for _ in range(rounds):
            for k in self.classes:
                elsewhere = [
                    sum((columns[q][i] for q in self.classes if q != k), Fraction(0))
                    for i in self.tenants
                ]
                # Exact fractions grow with every sweep; forty digits are exact enough.
                columns[k] = [each.limit_denominator(10**40) for each in self.fill(k, elsewhere)]
        return [[columns[k][i] for k in self.classes] for i in self.tenants]
