"""The ratio of a problem's largest to least amounts, bounded by solvers' tolerances."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from operator import itemgetter
from typing import Final

from placement.solve.problem.faults import Place, place_text
from placement.solve.problem.model import Problem

#: Amounts of one resource farther apart than this may be what stopped a solver.
FAR_APART: Final = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class AmountExtent:
    """The least and the largest amount of one resource above 0, and their places in the file."""

    resource: str
    minimum: Decimal
    least_at: Place
    largest: Decimal
    largest_at: Place

    @property
    def ratio(self) -> Decimal:
        """Largest amount over least amount."""
        return self.largest / self.minimum

    def __str__(self) -> str:
        return (
            f"amounts of {self.resource!r} reach from {self.minimum.normalize():f} "
            f"({place_text(self.least_at)}) to {self.largest.normalize():f} "
            f"({place_text(self.largest_at)})"
        )


def widest_extent(problem: Problem) -> AmountExtent | None:
    """Return the extent of the problem's resource with the largest ratio of amounts, or None.

    What hosts offer counts as a class has it in all.
    """
    found = []
    for r, name in enumerate(problem.resources):
        amounts = [each for each in _amounts_with_places(problem, r) if each[0] > 0]
        if amounts:
            minimum, least_at = min(amounts, key=itemgetter(0))
            largest, largest_at = max(amounts, key=itemgetter(0))
            found.append(
                AmountExtent(
                    resource=name,
                    minimum=minimum,
                    least_at=least_at,
                    largest=largest,
                    largest_at=largest_at,
                )
            )
    return max(found, key=lambda spread: spread.ratio, default=None)


def _amounts_with_places(problem: Problem, r: int) -> Iterator[tuple[Decimal, Place]]:
    """Yield all amounts of a resource in the problem file, each with its place."""
    for h, host in enumerate(problem.hosts):
        yield host.capacity[r] * host.count, ("hosts", h, "capacity", r)
        yield host.free[r] * host.count, ("hosts", h, "free", r)
    for q, demand in enumerate(problem.demands):
        yield demand.per_vm[r], ("demands", q, "per_vm", r)
