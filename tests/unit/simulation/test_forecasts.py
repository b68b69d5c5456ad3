"""Estimates of waiting times hold as often as they say, where the future is like the past."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from benchmarks.forecasts import JudgedEstimate, calibration_factors, judge_estimates, judged
from placement.forecast.estimate import QUANTILES
from simulation.traces.chunks import Arrivals, Chunk
from simulation.traces.request_constraints import RequestConstraints
from tests.simulations import RESOURCES, an_engine

HOUR_S = 3600.0


@dataclass(frozen=True)
class Stream:
    """Requests at random moments, of about as much as there is room for, in VMs of two types."""

    hours: int
    seed: int = 4
    resources: tuple[str, ...] = RESOURCES

    def chunks(self) -> Iterator[Chunk]:
        rng = np.random.default_rng(self.seed)
        number = self.hours * 54
        large = rng.random(number) < 0.3
        yield Chunk(
            arrival_s=np.sort(rng.uniform(0, self.hours * HOUR_S, number)),
            lifetime_s=rng.exponential(np.where(large, 2400.0, 1200.0)),
            tenant=tuple(f"t{each}" for each in rng.integers(0, 3, number).tolist()),
            demand=np.where(large[:, None], [[4, 4096]], [[1, 1024]]),
            count=np.ones(number, dtype=np.int64),
            min_count=np.ones(number, dtype=np.int64),
            request_constraints=(RequestConstraints(),) * number,
            read=1.0,
        )


def test_nine_in_ten_intervals_hold() -> None:
    engine = an_engine(
        capacity=((8, 8192),) * 6,
        policy="best_fit_drfh",
        parameters={"patience": 0},
        slot_length_s=300.0,
    )

    shown = list(
        judge_estimates(
            engine,
            Arrivals(Stream(hours=14)),
            every_s=HOUR_S,
            samples=20,
            of_each=10,
            horizon_s=2 * HOUR_S,
        )
    )

    found = judged(shown)
    assert found is not None
    assert found.judged >= 60
    assert found.within >= 0.85
    # Intervals that say something: of half the length they would not hold as often.
    halved = judged(shown, (2.0, 1.0, 1.0, 0.5))
    assert halved is not None
    assert halved.within < 0.85


def test_factors_are_what_would_have_been_right() -> None:
    """Estimates that are half of what they should be are doubled."""
    rng = np.random.default_rng(2)
    waits_s = rng.exponential(600.0, (400, 41))
    shown = [
        JudgedEstimate(
            at_s=0.0, request=n, quantiles=tuple(np.quantile(w[1:] / 2, QUANTILES)), took_s=w[0]
        )
        for n, w in enumerate(waits_s)
    ]

    factors = calibration_factors(shown)

    assert factors[1:] == pytest.approx((2.0, 2.0, 2.0), rel=0.3)
    before, after = judged(shown), judged(shown, factors)
    assert before is not None
    assert after is not None
    assert before.within < 0.8 < 0.89 <= after.within
