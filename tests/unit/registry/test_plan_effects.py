"""The sentence on what a plan makes better and worse."""

from __future__ import annotations

from typing import Any

import pytest

from registry.moves.plan_effects import effect_text

BEFORE = {
    "potential": -1.0,
    "mean_skewness": 0.4,
    "hosts_in_use": 8,
    "fairness_distance": 0.25,
    "moved_gib": 0.0,
}


@pytest.mark.parametrize(
    ("kind", "changes", "said"),
    [
        (
            "balance",
            {"potential": -0.5, "mean_skewness": 0.2, "hosts_in_use": 9, "moved_gib": 12.0},
            "Better: the load of hosts is nearer to the pool's, hosts use their resources more"
            " evenly (0.4000 to 0.2000). Worse: 1 more host is in use. Cost: 12.0 GiB to move.",
        ),
        (
            "pack",
            {"potential": -0.5, "mean_skewness": 0.5, "hosts_in_use": 6, "moved_gib": 1.5},
            "Better: VMs are on fewer, fuller hosts, 2 hosts are free. Worse: hosts use their"
            " resources less evenly (0.4000 to 0.5000). Cost: 1.5 GiB to move.",
        ),
        (
            "balance",
            {"potential": -1.5, "fairness_distance": 0.5},
            "Better: nothing. Worse: the load of hosts is further off, shares are further from"
            " fair (25.00% to 50.00%). Cost: 0.0 GiB to move.",
        ),
        ("balance", {}, "Better: nothing. Worse: nothing. Cost: 0.0 GiB to move."),
        ("evacuate", {"hosts_in_use": 7}, None),
    ],
)
def test_it_names_what_changes_and_nothing_else(
    kind: str, changes: dict[str, Any], said: str | None
) -> None:
    assert effect_text(kind, BEFORE, {**BEFORE, **changes}) == said


def test_plans_without_measures_have_none() -> None:
    assert effect_text("balance", None, None) is None
    assert effect_text("balance", {"potential": 1.0}, {"potential": 1.0}) is not None
