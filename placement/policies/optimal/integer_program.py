"""A small integer program, built column by column and solved by HiGHS."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from placement.errors import SolverError

#: Gains above this are divided down: HiGHS works with differences of 1e-6.
_LARGEST_GAIN: Final = 1e6
#: Status of SciPy's milp.
_INFEASIBLE: Final = 2
#: Bounds this close above a whole number are that number.
_ROUNDING: Final = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimalSolution:
    """The solution that HiGHS found within its node limit."""

    values: tuple[int, ...] | None  #: of each column; None if it found none
    bound: int  #: no values gain more
    nodes: int  #: of the search tree


@dataclass(slots=True)
class IntegerProgram:
    """Maximise the gains of bounded whole numbers, subject to rows."""

    _maximum: list[int] = field(default_factory=list)
    _entries: list[tuple[int, int, float]] = field(default_factory=list)
    _limits: list[tuple[float, float]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self._maximum)

    def add_column(self, maximum: int) -> int:
        """Add an unknown from 0 to ``maximum``; return its index."""
        self._maximum.append(maximum)
        return len(self._maximum) - 1

    def add_row(
        self, entries: Iterable[tuple[int, float]], *, minimum: float = -math.inf, maximum: float
    ) -> None:
        """Keep the sum of column times coefficient from ``minimum`` to ``maximum``."""
        number = len(self._limits)
        self._entries += [(number, column, factor) for column, factor in entries]
        self._limits.append((minimum, maximum))

    def solve(self, gains: Sequence[int], node_limit: int) -> OptimalSolution:
        """Maximise the sum of column times gain by HiGHS, within a limit of nodes.

        Parameters
        ----------
        gains : sequence of int
            Of each column, 0 or more.
        node_limit : int
            Of the search tree, at least 1. Nodes are counted and never timed,
            so that the same program ends in the same values.

        Raises
        ------
        SolverError
            If HiGHS reports neither an optimum nor its node limit.
        """
        from scipy import optimize, sparse  # noqa: PLC0415 - slow to import, only needed here

        maximum = math.gcd(*gains)
        if maximum == 0:
            return OptimalSolution(values=(0,) * len(self), bound=0, nodes=0)
        unit = maximum * max(1.0, max(gains) / maximum / _LARGEST_GAIN)
        rows, columns, factors = zip(*self._entries, strict=True)
        minimum, limit = np.array(self._limits).T
        matrix = sparse.csr_array(
            (np.array(factors, dtype=np.float64), (rows, columns)),
            shape=(len(self._limits), len(self)),
        )

        def run(*, presolve: bool) -> optimize.OptimizeResult:
            """Solve the program by HiGHS once."""
            return optimize.milp(
                -np.array(gains, dtype=np.float64) / unit,
                integrality=np.ones(len(self)),
                bounds=optimize.Bounds(0, np.array(self._maximum, dtype=np.float64)),
                constraints=optimize.LinearConstraint(matrix, minimum, limit),
                options={"node_limit": node_limit, "mip_rel_gap": 0.0, "presolve": presolve},
            )

        result = run(presolve=True)
        if result.status == _INFEASIBLE:
            # The presolve of HiGHS says so of some programs that have solutions.
            result = run(presolve=False)
        # Its limit of nodes is status 1 or 4, by the version of SciPy.
        if result.status not in (0, 1) and "limit" not in str(result.message):
            raise SolverError("optimal placement", int(result.status), str(result.message))
        values = None if result.x is None else tuple(np.rint(result.x).astype(np.int64).tolist())
        ceiling = sum(gain * column for gain, column in zip(gains, self._maximum, strict=True))
        dual = result.mip_dual_bound
        if dual is not None and math.isfinite(dual):
            whole = math.floor(-dual * (unit / maximum) * (1 + 1e-12) + _ROUNDING)
            ceiling = min(ceiling, whole * maximum)
        return OptimalSolution(values=values, bound=ceiling, nodes=int(result.mip_node_count or 0))
