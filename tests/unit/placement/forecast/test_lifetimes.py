"""Lifetimes from VMs that ended and VMs that still run."""

from __future__ import annotations

import numpy as np
import pytest

from placement.forecast.lifetimes import Lifetimes, ObservedLifetimes


def observed(*of_group: tuple[int, float, bool]) -> ObservedLifetimes:
    """Return VMs of one tenant's: (type, age, whether it ended)."""
    vm_type, age_s, ended = zip(*of_group, strict=True)
    types = np.array(vm_type, dtype=np.int64)
    return ObservedLifetimes(
        groups=np.column_stack([types]),
        age_s=np.array(age_s, dtype=np.float64),
        ended=np.array(ended, dtype=np.bool_),
    )


def left(lifetimes: Lifetimes, vm_type: int, age_s: float, draws: int = 4000) -> np.ndarray:
    """Return how long a VM of a type and an age lives on, many times over."""
    rng = np.random.default_rng(7)
    ages = np.full(1, age_s)
    curve = lifetimes.curves_of(np.array([[vm_type]]), ages)
    return np.array(
        [
            lifetimes.draw_curves(rng).remaining_lives_s(curve, ages, rng.random(1))[0]
            for _ in range(draws)
        ]
    )


def test_vms_that_run_keep_long_lives_from_looking_short():
    """Freireich's leukaemia patients (1963), on whom Kaplan and Meier's curve is taught."""
    ended = [6, 6, 6, 7, 10, 13, 16, 22, 23] * 3
    runs = [6, 9, 10, 11, 17, 19, 20, 25, 32, 32, 34, 35] * 3
    known = observed(*((0, week, True) for week in ended), *((0, week, False) for week in runs))

    lives = left(Lifetimes(known), 0, 0.0)

    for week, survives in ((6, 0.857), (7, 0.807), (10, 0.753), (13, 0.690)):
        assert np.mean(lives > week) == pytest.approx(survives, abs=0.03)


def test_a_curve_goes_on_beyond_what_was_seen_as_a_power_of_the_age():
    """Pareto's lives of exponent 1.5, of which nobody could watch one for more than an hour."""
    rng = np.random.default_rng(2)
    lived_s = 60.0 * (1.0 - rng.random(4000)) ** (-1 / 1.5)
    known = ObservedLifetimes(
        groups=np.zeros((4000, 1), dtype=np.int64),
        age_s=np.minimum(lived_s, 3600.0),
        ended=lived_s <= 3600.0,
    )

    of_two_hours = left(Lifetimes(known), 0, 7200.0)

    assert np.mean(of_two_hours > 7200.0) == pytest.approx(2**-1.5, abs=0.2)  # of ten ends


def test_what_is_left_depends_on_the_age_that_was_reached():
    short, long = [(0, 60.0, True)] * 90, [(0, 3600.0, True)] * 30
    lifetimes = Lifetimes(observed(*short, *long))

    assert np.mean(left(lifetimes, 0, 0.0) == 60.0) == pytest.approx(0.75, abs=0.03)
    assert (left(lifetimes, 0, 100.0, draws=50) == 3500.0).all()


def test_groups_that_saw_too_few_ends_leave_it_to_coarser_ones():
    known = observed(*[(1, 100.0, True)] * 30, *[(2, 900.0, True)] * 5)
    lifetimes = Lifetimes(known)
    types = np.array([[1], [2], [1], [2]])

    curves = lifetimes.curves_of(types, np.array([0.0, 0.0, 100.0, 1000.0]))

    own, of_all, too_old, beyond = curves.tolist()
    assert own >= 0
    assert own != of_all == too_old == beyond  # five ends beyond that age, and none
    drawn = lifetimes.draw_curves(np.random.default_rng(1))
    ages_s, level = np.array([100.0, 1000.0]), np.full(2, 0.5)
    assert (drawn.remaining_lives_s(curves[2:], ages_s, level) > 0).all()


def test_without_enough_ends_nothing_is_known():
    lifetimes = Lifetimes(observed(*[(1, 5.0, True)] * 19, *[(1, 5.0, False)] * 500))

    assert not lifetimes.is_known


def test_few_observations_make_wide_estimates():
    """The part that outlives an age varies from draw to draw as its estimate would."""
    rng = np.random.default_rng(3)
    few, many = (
        Lifetimes(observed(*[(0, 10.0, True)] * (n // 2), *[(0, 20.0, True)] * (n // 2)))
        for n in (40, 4000)
    )

    def spread(lifetimes: Lifetimes) -> float:
        ages_s = np.array([10.0])
        parts = [lifetimes.draw_curves(rng).curves[0].survival_at(ages_s)[0] for _ in range(200)]
        return float(np.std(parts))

    assert spread(few) == pytest.approx(0.5 / np.sqrt(40), rel=0.25)
    assert spread(many) == pytest.approx(0.5 / np.sqrt(4000), rel=0.25)
