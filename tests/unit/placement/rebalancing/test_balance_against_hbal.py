"""Ganeti's hbal on the same clusters: the benchmark compares like with like."""

import numpy as np
import pytest

from benchmarks.placement.balance import (
    UNPRICED,
    away,
    by_hbal,
    hbal_score,
    moves_of,
    uneven_cluster,
    used_after,
)
from placement.rebalancing.balance import balance
from placement.rebalancing.check import check_plan


def test_with_as_many_moves_hosts_end_more_level_than_by_hbal():
    """On the mean of clusters: on one so small, single VMs decide."""
    ratios = []
    for seed in range(1, 7):
        running = uneven_cluster(10, 100, seed=seed)

        theirs = by_hbal(running, 20)
        plan = balance(running, UNPRICED.with_given({"most_moves": len(theirs.moves)}))

        check_plan(running, plan)
        by_nobody, by_them = used_after(running, ()), used_after(running, theirs.moves)
        by_us = used_after(running, moves_of(plan))
        assert theirs.before == pytest.approx(hbal_score(running, by_nobody), abs=1e-6)
        assert theirs.after == pytest.approx(hbal_score(running, by_them), abs=1e-6)
        assert len(theirs.moves) >= len(plan.moves) > 0
        ratios.append(
            (
                hbal_score(running, by_us) / theirs.after,
                away(running, by_us) / away(running, by_them),
            )
        )

    assert (np.log(ratios).mean(axis=0) <= 0).all(), ratios
