"""No policy that reads the overload threshold fills a host above it."""

from __future__ import annotations

import numpy as np
import pytest

from placement import POLICIES, Budget, check_allocation, policy_by_name
from tests.round_inputs import some_snapshot

READ_IT = sorted(name for name, entry in POLICIES.items() if "overload" in entry.parameters)


@pytest.mark.parametrize("name", READ_IT)
def test_no_host_is_filled_above_the_threshold(name):
    snapshot = some_snapshot()

    allocation = policy_by_name(name, {"overload": 0.5}).place(
        snapshot, np.random.default_rng(0), Budget()
    )

    check_allocation(snapshot, allocation, overload=0.5)
    assert len(allocation.placed)


def test_the_fallback_of_a_round_reads_it():
    assert "best_fit_drfh" in READ_IT
