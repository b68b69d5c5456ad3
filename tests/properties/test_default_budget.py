"""The budget that a round has by default, against the rounds of large clusters."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.placement.clusters import a_slot, fresh_round, half_filled_round, large_hosts_round
from controller.settings import ControllerSettings
from placement import Budget, policy_by_name

UNITS = ControllerSettings.model_fields["budget_units"].default


@pytest.mark.parametrize(
    "snapshot",
    [
        pytest.param(lambda: fresh_round(12_500), id="empty hosts"),
        pytest.param(lambda: a_slot(12_500, vms=10_000), id="a slot"),
        pytest.param(lambda: half_filled_round(12_500), id="half filled hosts"),
        pytest.param(lambda: large_hosts_round(1_000), id="20 types on 128 cores"),
    ],
)
def test_the_default_budget_lasts_for_more_than_twice_a_large_round(snapshot):
    budget = Budget(UNITS)

    allocation = policy_by_name("fuga", {}).place(snapshot(), np.random.default_rng(0), budget)

    assert not [cut for cut in allocation.details["cuts"] if cut.endswith("budget")]
    assert budget.spent < UNITS / 2
