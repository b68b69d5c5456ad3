"""Learn VM lifetimes from VMs that ended and from VMs that still run.

The estimate is Kaplan and Meier's (J. Am. Stat. Assoc. 53, 1958): of the VMs that reached an age,
which part ended at it. A VM that runs counts at every age up to its own, and at none after it, so
that long lives are not mistaken for short ones because only short ones have ended yet.

Where few ends are left a curve is continued by a power of the age, as lives of VMs have heavy tails
and running VMs are older than most that ended. Its exponent is Hill's (Ann. Stat. 3, 1975), with
running VMs counted as Beirlant and others do (Extremes 10, 2007).

VMs are alike in groups, from the finest (those of one tenant and type) to all. Of each VM the
finest group speaks that saw enough ends beyond the age that the VM has reached, else that of all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from placement.model.arrays import BoolArray, FloatArray, IntArray

#: Ends beyond an age that a group must have seen to speak of VMs of that age.
MIN_ENDS: Final = 20
#: Ends of which the continuation of a curve is made.
_TAIL_ENDS: Final = 10


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ObservedLifetimes:
    """Observed lifetimes of V VMs, complete or still running."""

    groups: IntArray  #: (V, L) numbers of the groups that each is in, the finest first
    age_s: FloatArray  #: (V,) when it ended, or the age that it has reached
    ended: BoolArray  #: (V,)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _LifetimeCurve:
    """The observed lifetimes of one group of VMs in order of age; at one age, ended first."""

    age_s: FloatArray
    ended: BoolArray
    ends_s: FloatArray  #: ages of those that ended

    @classmethod
    def of(cls, age_s: FloatArray, ended: BoolArray) -> _LifetimeCurve:
        """Sort the observed lifetimes of one group of VMs."""
        order = np.lexsort((~ended, age_s))
        age_s, ended = age_s[order], ended[order]
        return cls(age_s=age_s, ended=ended, ends_s=age_s[ended])

    def ends_beyond(self, age_s: FloatArray) -> IntArray:
        """Return how many VMs of the group ended beyond each age."""
        before: IntArray = np.searchsorted(self.ends_s, age_s, side="right")
        return len(self.ends_s) - before

    def draw_curve(self, weight: FloatArray) -> DrawnCurve:
        """Return the survival curve of the group's VMs under these weights (Kaplan-Meier)."""
        at_risk = np.cumsum(weight[::-1])[::-1]
        survives: FloatArray = np.cumprod(1.0 - self.ended * weight / at_risk, dtype=np.float64)
        tail_s = float(self.ends_s[max(0, len(self.ends_s) - _TAIL_ENDS - 1)])
        first = int(np.searchsorted(self.age_s, tail_s, side="right"))
        passed = float((weight[first:] * np.log(self.age_s[first:] / max(tail_s, 1.0))).sum())
        ends = float((weight[first:] * self.ended[first:]).sum())
        return DrawnCurve(
            age_s=self.age_s[:first],
            survives=survives[:first],
            tail_s=max(tail_s, 1.0),
            exponent=ends / passed if ends > 0.0 < passed else None,
        )


class Lifetimes:
    """Survival curves of all groups of VMs with enough observed ends.

    Parameters
    ----------
    observed : Observed
    least_ends : int
        See `MIN_ENDS`.
    """

    def __init__(self, observed: ObservedLifetimes, least_ends: int = MIN_ENDS) -> None:
        all_vms = np.zeros((len(observed.age_s), 1), dtype=np.int64)
        groups = np.concatenate([observed.groups, all_vms], axis=1)
        self._minimum = least_ends
        self._curves: list[_LifetimeCurve] = []
        self._number: list[dict[int, int]] = []  # of each level, by group
        for level in range(groups.shape[1]):
            numbers: dict[int, int] = {}
            order = np.argsort(groups[:, level], kind="stable")
            names, starts = np.unique(groups[order, level], return_index=True)
            # Without any VM there is one empty part.
            parts = np.split(order, starts[1:])[: len(names)]
            for name, rows in zip(names.tolist(), parts, strict=True):
                curve = _LifetimeCurve.of(observed.age_s[rows], observed.ended[rows])
                if len(curve.ends_s) >= least_ends:
                    numbers[name] = len(self._curves)
                    self._curves.append(curve)
            self._number.append(numbers)

    @property
    def is_known(self) -> bool:
        """Whether enough ends of VMs were observed for any survival curve."""
        return bool(self._curves)

    def curves_of(self, groups: IntArray, age_s: FloatArray) -> IntArray:
        """Return the number of the survival curve that applies to each VM, shape (V,).

        Parameters
        ----------
        groups : ndarray of int64, shape (V, L)
            Groups of each VM, as in `ObservedLifetimes`.
        age_s : ndarray of float64, shape (V,)
            Age of each VM.

        Returns
        -------
        ndarray of int64, shape (V,)
            Indices of curves; -1 for every VM if all VMs together have too few ends.
        """
        all_vms = np.zeros((len(age_s), 1), dtype=np.int64)
        found = np.full(len(age_s), -1, dtype=np.int64)
        for level, column in enumerate(np.concatenate([groups, all_vms], axis=1).T):
            left = np.flatnonzero(found < 0)
            names, inverse = np.unique(column[left], return_inverse=True)
            curve = np.array(
                [self._number[level].get(name, -1) for name in names.tolist()], dtype=np.int64
            )[inverse.ravel()]
            for number in np.unique(curve[curve >= 0]).tolist():
                rows = left[curve == number]
                enough = self._curves[number].ends_beyond(age_s[rows]) >= self._minimum
                found[rows if level == groups.shape[1] else rows[enough]] = number
        return found

    def draw_curves(self, rng: np.random.Generator) -> DrawnLifetimes:
        """Return randomly drawn survival curves; they vary more where fewer VMs were observed.

        Each observation gets an exponential weight (Rubin's Bayesian bootstrap, which for
        censored data is Lo's: Ann. Stat. 21, 1993).
        """
        return DrawnLifetimes(
            tuple(
                curve.draw_curve(rng.exponential(size=len(curve.age_s))) for curve in self._curves
            )
        )


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class DrawnCurve:
    """A survival curve: the fraction of VMs that outlives each observed age, (E,)."""

    age_s: FloatArray
    survives: FloatArray  #: falling
    tail_s: float  #: beyond this age falls as a power of it
    exponent: float | None  #: None: nothing was seen beyond

    def survival_at(self, age_s: FloatArray) -> FloatArray:
        """Return the fraction of VMs that outlives each age, (V,)."""
        reached = np.searchsorted(self.age_s, age_s, side="right")
        part: FloatArray = np.concatenate([[1.0], self.survives])[reached]
        if self.exponent is not None:
            part = part * np.maximum(age_s / self.tail_s, 1.0) ** -self.exponent
        return part

    def age_at_survival(self, part: FloatArray) -> FloatArray:
        """Return the lowest age that at most a fraction of VMs outlives, (V,); inf if unknown."""
        ages = np.append(self.age_s, np.inf)
        age_s: FloatArray = ages[np.searchsorted(-self.survives, -part, side="left")]
        if self.exponent is None:
            return age_s
        last = self.survives[-1] if len(self.survives) else 1.0
        with np.errstate(divide="ignore", over="ignore"):
            tail_s = self.tail_s * (part / last) ** (-1.0 / self.exponent)
        return np.where(np.isinf(age_s), tail_s, age_s)


@dataclass(frozen=True, slots=True, eq=False)
class DrawnLifetimes:
    """Randomly drawn survival curves, from which remaining lives are read."""

    curves: tuple[DrawnCurve, ...]

    def remaining_lives_s(
        self, curve: IntArray, age_s: FloatArray, level: FloatArray
    ) -> FloatArray:
        """Return the remaining life of each VM in seconds, given its age.

        Parameters
        ----------
        curve : ndarray of int64, shape (V,)
            Indices that `Lifetimes.curves_of` returned.
        age_s : ndarray of float64, shape (V,)
        level : ndarray of float64, shape (V,)
            Uniform random numbers in [0, 1); equal for VMs that end together.

        Returns
        -------
        ndarray of float64, shape (V,)
            Remaining seconds; inf where no lifetime that long was observed.
        """
        left = np.full(len(age_s), np.inf)
        for number in np.unique(curve[curve >= 0]).tolist():
            rows, its = np.flatnonzero(curve == number), self.curves[number]
            part = its.survival_at(age_s[rows])
            ends = np.where(part > 0, its.age_at_survival(part * level[rows]), np.inf)
            left[rows] = np.maximum(ends - age_s[rows], 0.0)
        return left
