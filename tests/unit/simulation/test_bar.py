"""Where the benchmark of the default says that it misses its bar, and what it prints."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.bar import BEST_FIT, DEFAULT, FIRST_FIT, Measures, misses, tables

REFERENCE = Measures(
    placed=0.9,
    placed_by_size=0.8,
    wait_s=1000.0,
    waiting_by_size_s=2000.0,
    unfair=0.010,
    whole_hosts=1.0,
)


def judged(trace: str, **own: float) -> list[str]:
    found = {
        DEFAULT: [replace(REFERENCE, **own)] * 2,
        BEST_FIT: [REFERENCE] * 2,
        FIRST_FIT: [REFERENCE] * 2,
    }
    return [*misses(trace, found)]


@pytest.mark.parametrize(
    ("trace", "own"),
    [
        ("azure", {"placed": 0.8951, "wait_s": 1149.0, "unfair": 0.0109}),
        ("held-out", {"waiting_by_size_s": 2099.0}),
        ("gpu", {"wait_s": 199.0, "placed": 0.8951, "waiting_by_size_s": 2099.0}),
        ("huawei", {"wait_s": 1099.0}),
    ],
)
def test_nothing_is_said_of_a_default_within_its_bar(trace: str, own: dict[str, float]) -> None:
    assert judged(trace, **own) == []


@pytest.mark.parametrize(
    ("trace", "own", "said"),
    [
        ("azure", {"placed": 0.894}, f"placed -0.60 ± 0.00 against {BEST_FIT}, at least -0.5"),
        ("google", {"unfair": 0.012}, f"off fair +0.20 ± 0.00 against {BEST_FIT}, at most 0.1"),
        (
            "azure",
            {"wait_s": 1160.0},
            f"mean wait × 1.16 ± 0.00 against {BEST_FIT}, at most × 1.15",
        ),
        (
            "held-out",
            {"waiting_by_size_s": 2200.0},
            f"wait by size × 1.10 ± 0.00 against {BEST_FIT}, at most × 1.05",
        ),
        (
            "huawei",
            {"whole_hosts": 0.98},
            f"whole hosts -2.00 ± 0.00 against {FIRST_FIT}, at least 0",
        ),
        (
            "gpu",
            {"wait_s": 199.0, "unfair": 0.011},
            f"off fair +0.10 ± 0.00 against {BEST_FIT}, at most 0",
        ),
        (
            "gpu",
            {"wait_s": 199.0, "placed": 0.894},
            f"placed -0.60 ± 0.00 against {BEST_FIT}, at least -0.5",
        ),
        (
            "gpu",
            {"wait_s": 199.0, "waiting_by_size_s": 2200.0},
            f"wait by size × 1.10 ± 0.00 against {BEST_FIT}, at most × 1.05",
        ),
    ],
)
def test_a_miss_names_the_measure_the_reference_and_the_bound(
    trace: str, own: dict[str, float], said: str
) -> None:
    assert judged(trace, **own) == [f"misses: {said}"]


def test_differences_are_paired_and_their_means_have_intervals() -> None:
    own = [replace(REFERENCE, placed=each, wait_s=None) for each in (0.5, 0.91)]
    other = [replace(REFERENCE, placed=each) for each in (0.5, 0.90)]

    lines = [*tables("azure", {DEFAULT: own, BEST_FIT: other})]

    head, means, _, against, row, *_ = lines
    assert head.split()[:3] == ["azure,", "2", "parts"]
    assert means.split()[:4] == ["fuga", "70.50", "±", "260.48"]
    assert against == f"against {BEST_FIT}"
    # The parts differ by 41 points, the policies by a half ± t(0.975, 1) × 0.707 / √2.
    assert row.split()[:4] == ["fuga", "+0.50", "±", "6.35"]
    assert "-" in row.split()


def test_without_the_reference_nothing_is_judged() -> None:
    assert [*misses("azure", {DEFAULT: [REFERENCE]})] == []
