"""Where the benchmark of the default says that it misses its bar."""

import pytest

from benchmarks.bar import DEFAULT, REFERENCES, Found, misses

BEST_FIT, FIRST_FIT = REFERENCES
BESIDE = {BEST_FIT: [Found(0.9, 1000.0, 0.010)], FIRST_FIT: [Found(0.88, 1200.0, 0.020)]}


def judged(own):
    return misses({DEFAULT: [own], **BESIDE})


def test_nothing_is_said_of_a_default_within_its_bar():
    assert judged(Found(0.896, 1049.0, 0.0101)) == []


@pytest.mark.parametrize(
    ("own", "said"),
    [
        (Found(0.894, 900.0, 0.001), "misses: 0.60 points fewer placed"),
        (Found(0.99, 1100.0, 0.001), "misses: waits 1.10 times as long"),
        (Found(0.99, 900.0, 0.015), "misses: 0.50 points less fair"),
    ],
)
def test_a_miss_is_said_beside_whichever_is_best_at_it(own, said):
    assert judged(own) == [said]


def test_each_figure_is_a_mean_over_seeds():
    runs = [Found(0.9, 900.0, 0.01), Found(0.9, 1300.0, 0.01)]

    assert misses({DEFAULT: runs, BEST_FIT: [Found(0.9, 1000.0, 0.01)]}) == [
        "misses: waits 1.10 times as long"
    ]


def test_without_a_reference_nothing_is_judged():
    assert misses({DEFAULT: [Found(0.1, 9.0, 0.9)]}) == []
