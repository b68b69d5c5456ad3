"""The model of reproduced items: the paper's numbers, our numbers, and the verdict."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Self, TypeAlias, TypeVar

import numpy as np

from simulation.metrics.confidence import half_width
from simulation.report.plots import Plot

Cell: TypeAlias = str | float | int | None
Made = TypeVar("Made")


class Paper(StrEnum):
    """A paper that reports results, as items cite it."""

    FUGA = (
        "X. Xu, H. Yu, A Game Theory Approach to Fair and Efficient Resource Allocation in Cloud "
        "Computing, Mathematical Problems in Engineering, 2014"
    )
    DRFH = (
        "W. Wang, B. Li, B. Liang, Dominant Resource Fairness in Cloud Computing Systems with "
        "Heterogeneous Servers, INFOCOM 2014 (and IEEE TPDS 2015)"
    )
    PSDSF = (
        "J. Khamse-Ashari, I. Lambadaris, G. Kesidis, B. Urgaonkar, Y. Zhao, Per-Server "
        "Dominant-Share Fairness (PS-DSF), 2016"
    )
    MCH = (
        "Low Complexity Hierarchical Scheduling for Diverse Datacenter Jobs, IEEE Communications "
        "Letters, 2019"
    )


class Verdict(StrEnum):
    """Whether a table or figure of a paper was reproduced."""

    AGREES = "agrees"  #: all its numbers, and all that it says
    DIRECTION = "agrees in direction"  #: all that it says, not all numbers, or it has none
    DIFFERS = "differs"
    NOT_REPRODUCED = "not reproduced"  #: what the paper compares with is not at hand


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """A number of a paper and the one computed here."""

    what: str
    paper: float
    ours: float
    unit: str
    within: float  #: how far apart they may be, set before either was looked at
    exact: bool = False  #: there is no excuse for another: nothing in it was measured or replaced
    runs: tuple[float, ...] = ()  #: one value per run, if there were several; ``ours`` is the mean

    @classmethod
    def of_runs(
        cls, runs: Sequence[float], *, what: str, paper: float, unit: str, within: float
    ) -> Self:
        """Compare the mean of several runs with a paper's number."""
        ours = float(np.mean(runs))
        return cls(what=what, paper=paper, ours=ours, unit=unit, within=within, runs=tuple(runs))

    @property
    def margin_of_error(self) -> float:
        """Half of the 95 % confidence interval of the mean; 0 without several runs."""
        return half_width(self.runs)

    @property
    def agrees(self) -> bool:
        """Whether our number is near enough to the paper's, with its whole confidence interval."""
        return abs(self.ours - self.paper) + self.margin_of_error <= self.within


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """A statement of the paper about its figure, and whether it holds for our figure."""

    says: str
    found: str  #: the numbers that it was judged by
    holds: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The paper's result and ours, where the two measure different things."""

    what: str
    paper: str
    ours: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Columns of data behind a figure, with units in their names."""

    name: str
    columns: tuple[str, ...]
    rows: Sequence[Sequence[Cell]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemOutcome:
    """The outcome of reproducing a table or figure."""

    numbers: tuple[Number, ...] = ()
    statements: tuple[Statement, ...] = ()
    comparisons: tuple[Comparison, ...] = ()  #: shown and not judged
    tables: tuple[Table, ...] = ()
    draw: Callable[[], Plot]  #: called when the plot is wanted: matplotlib is slow to import
    note: str = ""  #: how numbers are measured, and what else they show
    why: str = ""  #: why numbers or statements may differ, printed where they do

    @property
    def verdict(self) -> Verdict:
        """The verdict on the reproduced item."""
        if not self.numbers and not self.statements:
            return Verdict.NOT_REPRODUCED
        if not all(each.holds for each in self.statements):
            return Verdict.DIFFERS
        if all(each.agrees for each in self.numbers):
            return Verdict.AGREES if self.numbers else Verdict.DIRECTION
        return Verdict.DIRECTION if self.statements else Verdict.DIFFERS


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """Options of a reproduction, and results that items share."""

    quick: bool = False
    seed: int = 0
    #: called with the part of an item that is done
    report: Callable[[float], None] = lambda _: None
    made: dict[str, Any] = field(default_factory=dict)

    def get_or_make(self, key: str, make: Callable[[], Made]) -> Made:
        """Return a result that items share, by its key; make it at the first call."""
        if key not in self.made:
            self.made[key] = make()
        found: Made = self.made[key]
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """A table or figure of a paper, and how to reproduce it."""

    name: str  #: as in `fuga reproduce NAME`
    paper: Paper
    place: str  #: in the paper, as "Fig. 5"
    shows: str
    run: Callable[[Setup], ItemOutcome]
    instead: str = ""  #: the substitute for inputs that are not public
    is_timed: bool = False  #: measures this machine: no two runs are the same


Items: TypeAlias = Mapping[str, Item]
