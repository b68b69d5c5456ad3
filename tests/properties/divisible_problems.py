"""Hypothesis strategies for divisible problems."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from placement.mechanisms import DivisibleProblem
from tests.divisible import a_divisible_problem

#: Units of the resources: alike, one counted in bytes, one in millionths.
SCALES = ((1.0, 1.0, 1.0), (1.0, 1e9, 1e-6), (1e12, 1.0, 1.0))


@st.composite
def divisible_problems(
    draw: st.DrawFn,
    *,
    max_tenants: int = 4,
    max_classes: int = 4,
    positive: bool = False,
    bounded: bool = False,
    constrained: bool = False,
    held: bool = False,
    partly_free: bool = False,
    weighted: bool = True,
) -> DivisibleProblem:
    """Draw servers with ties, nothing of some resource, one huge or tiny; demands likewise.

    ``positive``: every demand of every resource is above 0. ``held`` draws
    whole tasks that run already, wherever they may be.
    """
    tenants = draw(st.integers(1, max_tenants))
    classes = draw(st.integers(1, max_classes))
    resources = draw(st.integers(1, 3))
    scale = np.array(draw(st.sampled_from(SCALES)))[:resources]
    sizes = np.array(
        [[draw(st.sampled_from([1.0, 1.0, 1.0, 100.0, 0.01]))] for _ in range(classes)]
    )
    capacity = _rows(draw, classes, resources, st.integers(0, 8)) * sizes
    demand = _rows(draw, tenants, resources, st.integers(1 if positive else 0, 4))
    demand = demand * np.array([[draw(st.sampled_from([1.0, 1.0, 3.0]))] for _ in range(tenants)])
    used = _rows(draw, classes, resources, st.sampled_from([0.0, 0.0, 0.5, 0.75, 1.0]))
    running = _rows(draw, tenants, 1, st.integers(0, 3))
    return a_divisible_problem(
        capacity * scale,
        demand * scale,
        free=capacity * scale * ((1 - used) if partly_free else 1.0),
        weight=_rows(
            draw, tenants, 1, st.sampled_from([1.0, 1.0, 2.0, 0.5] if weighted else [1.0])
        ),
        count=_rows(draw, tenants, 1, st.sampled_from([np.inf, 0.0, 1.0, 2.0, 2.5, 7.0]))
        if bounded
        else None,
        eligible=_rows(draw, tenants, classes, st.sampled_from([1, 1, 1, 0]))
        if constrained
        else None,
        held=demand * scale * running if held else None,
    )


def _rows(draw: st.DrawFn, rows: int, columns: int, values: st.SearchStrategy) -> np.ndarray:
    return np.array([[draw(values) for _ in range(columns)] for _ in range(rows)], dtype=np.float64)
