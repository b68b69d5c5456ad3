"""H of many demands at once, against H of one."""

from __future__ import annotations

import numpy as np
import pytest

from placement import Budget, policy_by_name
from placement.model.vm_kinds import VmKinds
from placement.packing.bucket_loop import BucketFill
from placement.packing.bucket_tables import BucketTables, Shapes
from placement.packing.buckets import mismatch
from tests.builders import a_snapshot


def some_demands(rng, kinds):
    """Return demands of which many are multiples of others; one asks for nothing."""
    vectors = rng.integers(0, 4, (5, 3))
    demands = vectors[rng.integers(0, 5, kinds)] * rng.integers(1, 5, (kinds, 1))
    return np.concatenate([demands, np.zeros((1, 3), dtype=np.int64)])


@pytest.mark.parametrize("seed", range(20))
def test_what_fits_and_its_mismatch_are_those_of_each_demand_by_itself(seed):
    rng = np.random.default_rng(seed)
    demands, pool = some_demands(rng, 12), np.array([100, 70, 0 if seed % 3 == 0 else 30])
    open_to = np.ones((len(demands), 1), dtype=np.bool_)
    kinds = VmKinds(demands, open_to, np.arange(len(demands)))
    shapes, tables = Shapes(demands, pool), BucketTables.of(1, pool, kinds)

    for free in rng.integers(0, 12, (30, 3)).tolist():
        fill = BucketFill(tables)
        fill.add_hosts(free, 0, [0])
        found = dict(enumerate(zip(fill._sizes, fill._score, strict=False)))
        for demand in demands.tolist():
            shape, least = shapes.place(tuple(demand))
            fits = any(demand) and all(a <= b for a, b in zip(demand, free, strict=True))
            assert (found.get(shape, (0, 0.0))[0] >= max(least, 1)) == fits
            if fits:
                assert found[shape][1] == mismatch(demand, free, pool.tolist())


@pytest.mark.parametrize("capacity", [[(8, 8), (2, 2)], [(2, 2), (8, 8)]])
def test_of_hosts_that_fit_a_vm_equally_well_the_first_takes_it(capacity):
    """Hosts of one shape tie, whatever their size; what else is asked for parts them."""
    snapshot = a_snapshot(capacity=capacity, demand=[(1, 1), (4, 4)], count=[1, 1])

    placed = policy_by_name("best_fit_drfh", {}).place(snapshot, np.random.default_rng(0), Budget())

    assert placed.placed[0].tolist() == [0, 0, 1]
