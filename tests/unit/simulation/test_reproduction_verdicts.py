"""Statements about figures, given numbers of which they hold and numbers of which they do not."""

from __future__ import annotations

import numpy as np
import pytest

from controller.embedded.setup import CAPACITIES
from simulation.metrics.confidence import half_width, is_above_zero
from simulation.reproduction import ITEMS, ItemOutcome, Setup
from simulation.reproduction.drfh_completion import (
    fraction_completed_only_there,
    judge_gains_by_size,
)
from simulation.reproduction.drfh_use import judge_most_used
from simulation.reproduction.fuga_cluster import HOSTS, judge_fairness, relative_deviation
from simulation.reproduction.fuga_scale import judge_allocation
from simulation.reproduction.item_runner import verdict_document
from simulation.reproduction.model import Comparison, Number
from simulation.reproduction.repetitions import run_seeds
from simulation.reproduction.reproduction_page import reproduction_page

FUGA = (16.0, 17.0, 18.0)


@pytest.mark.parametrize(
    ("ours", "agrees"),
    [
        ((15.0, 15.5, 16.0), True),  # 2.5 away, give or take 1.2
        ((10.0, 15.5, 21.0), False),  # as far away, give or take 14
        ((18.5, 18.6, 18.7), False),
    ],
)
def test_a_mean_agrees_with_its_whole_confidence_interval(
    ours: tuple[float, ...], agrees: bool
) -> None:
    number = Number.of_runs(ours, what="x", paper=13.0, unit="%", within=5.0)

    assert number.ours == pytest.approx(np.mean(ours))
    assert number.agrees is agrees


def test_the_confidence_interval_is_students() -> None:
    assert half_width([1.0, 2.0, 3.0]) == pytest.approx(4.302653 / np.sqrt(3))
    assert half_width([1.0]) == 0.0
    assert is_above_zero([0.9, 1.0, 1.1])
    assert not is_above_zero([-1.0, 1.0, 1.5])


def test_no_two_seeds_share_a_run() -> None:
    assert len(run_seeds(0)) == 10
    assert not set(run_seeds(0)) & set(run_seeds(1))


def test_the_deviation_is_the_mean_distance_from_the_mean_after_the_first_minute() -> None:
    shares = np.array([[0.0, 1.0], [0.2, 0.2], [0.1, 0.3]])

    assert relative_deviation(shares, np.array([0.0, 60.0, 70.0])) == pytest.approx((0.0 + 0.5) / 2)


@pytest.mark.parametrize(
    ("slots", "holds"),
    [
        ({10: (26.0, 27.1, 28.0), 14: (40.0, 44.0, 41.0)}, True),
        ({10: (26.0, 27.1, 28.0), 14: (12.0, 13.0, 11.0)}, False),
        ({14: (16.0, 17.0, 18.0)}, False),
        ({14: (10.0, 19.0, 25.0)}, False),  # nearer in the mean, by no more than noise
    ],
)
def test_fuga_is_fairer_than_slots_only_if_it_is_for_each_number_of_slots(
    slots: dict[int, tuple[float, ...]], holds: bool
) -> None:
    assert judge_fairness(FUGA, slots).holds is holds


@pytest.mark.parametrize(
    ("more", "holds"),
    [
        ([[5.0, 6.0], [4.0, 7.0]], True),
        ([[5.0, 6.0], [-0.1, 7.0]], False),  # in one run on one size
        ([[5.0, 6.0], [0.0, 7.0]], False),
    ],
)
def test_fuga_allocates_more_only_if_it_does_in_each_run(
    more: list[list[float]], holds: bool
) -> None:
    assert judge_allocation("CPU", np.array(more)).holds is holds


@pytest.mark.parametrize(
    ("gains", "small", "large"),
    [
        ((0.02, 0.2, 0.3), True, True),
        (
            (0.29, 0.21, 0.30),
            False,
            False,
        ),  # more in the last row than in the first, yet not rising
        ((0.02, 0.3, 0.2), True, False),
        ((0.02, 0.07, 0.2), True, False),  # rising, and not significant in one row
        ((-0.2, 0.2, 0.3), False, True),
        ((0.02,), True, False),
    ],
)
def test_gains_by_size_of_jobs_are_judged_row_by_row(
    gains: tuple[float, ...], small: bool, large: bool
) -> None:
    of_size = dict(zip(("1-50", "51-100", "101-500"), gains, strict=False))

    assert [each.holds for each in judge_gains_by_size(of_size)] == [small, large]


def test_no_statement_holds_of_jobs_of_which_none_completes() -> None:
    assert not any(each.holds for each in judge_gains_by_size({}))


@pytest.mark.parametrize(("best", "holds"), [(16, True), (14, False)])
def test_most_is_used_with_the_papers_number_of_slots(best: int, holds: bool) -> None:
    found = {slots: np.array([0.5 + (slots == best), 0.5]) for slots in (10, 12, 14, 16, 20)}

    assert judge_most_used(0, found).holds is holds


def test_who_completes_all_in_one_place_only_is_counted() -> None:
    there, elsewhere = np.array([1.0, 1.0, 0.9, 1.0]), np.array([0.9, 1.0, 0.5, 0.99])

    assert fraction_completed_only_there(there, elsewhere) == 0.5


def test_fuga_is_measured_on_the_hosts_that_fuga_up_has() -> None:
    assert HOSTS == CAPACITIES


def page_of(outcome: ItemOutcome) -> str:
    return reproduction_page([verdict_document(ITEMS["fuga-fig7"], outcome, Setup())], ["x"])


def nothing_to_draw() -> None:
    raise AssertionError


def test_the_page_has_the_interval_and_the_extremes_of_several_runs() -> None:
    number = Number.of_runs((1.0, 2.0, 3.0), what="x", paper=2.0, unit="", within=9.0)
    alike = Number.of_runs((0.1 + 0.2, 0.3), what="y", paper=0.3, unit="", within=9.0)

    page = page_of(ItemOutcome(numbers=(number, alike), draw=nothing_to_draw))  # type: ignore[arg-type]

    assert "| x | 2 | 2 ± 2.5 (1 to 3 in 3 runs) | 0 | 9 | agrees |" in page
    assert "| y | 0.3 | 0.3 ± 0 (0.3 to 0.3 in 2 runs) |" in page


def test_the_page_shows_what_is_of_different_things_without_a_verdict() -> None:
    shown = Comparison(what="CPU in use", paper="75 %", ours="no record of it")

    page = page_of(ItemOutcome(comparisons=(shown,), draw=nothing_to_draw))  # type: ignore[arg-type]

    assert "Verdict: **not reproduced**" in page
    assert "| CPU in use | 75 % | no record of it |" in page
