"""Rounds played ahead: exact where nothing is left to chance, and the same again."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from placement import decide, policy_by_name
from placement.forecast.current_state import CurrentState, RecentArrivals, RunningVms
from placement.forecast.estimate import estimate_wait
from placement.forecast.lifetimes import Lifetimes, ObservedLifetimes
from placement.forecast.narrowed_snapshot import narrow_snapshot
from placement.forecast.request_queues import merge_into_queues
from placement.forecast.run_ahead import RunAheadOptions, decision_times, simulate_waits
from tests.builders import a_snapshot

NOBODY_CAME = RecentArrivals(
    at_s=np.zeros(0), row=np.zeros(0, np.int64), count=np.zeros(0, np.int64), span_s=3600.0
)


def every_life(seconds: float) -> Lifetimes:
    return Lifetimes(
        ObservedLifetimes(
            groups=np.zeros((100, 1), dtype=np.int64),
            age_s=np.full(100, seconds),
            ended=np.ones(100, dtype=np.bool_),
        )
    )


def some_lives(seed: int = 1) -> Lifetimes:
    lived_s = np.random.default_rng(seed).lognormal(6, 1, 400)
    return Lifetimes(
        ObservedLifetimes(
            groups=np.zeros((400, 1), dtype=np.int64),
            age_s=lived_s,
            ended=np.ones(400, dtype=np.bool_),
        )
    )


def a_present(
    ages_s: list[float], *, came: RecentArrivals = NOBODY_CAME, hosts: int = 0, **snapshot: Any
) -> CurrentState:
    """Return full hosts of 4 cores, each with one VM that holds it, of these ages."""
    full = hosts or len(ages_s)
    capacity = ((4, 4096),) * full
    rows = len(snapshot["demand"])
    found = a_snapshot(
        capacity=capacity,
        free=((0, 0),) * full,
        resources=("vcpus", "memory_mib"),
        held=((4 * full, 4096 * full), *((0, 0),) * max(snapshot["tenant"])),
        **snapshot,
    )
    vms = len(ages_s)
    return CurrentState(
        snapshot=found,
        groups=np.zeros((rows, 1), dtype=np.int64),
        ends_in_s=np.full(rows, np.inf),
        running=RunningVms(
            host=np.arange(vms),
            tenant=np.zeros(vms, dtype=np.int64),
            request=np.arange(vms),
            count=np.ones(vms, dtype=np.int64),
            demand=np.tile(np.array([[4, 4096]]), (vms, 1)),
            groups=np.zeros((vms, 1), dtype=np.int64),
            age_s=np.array(ages_s, dtype=np.float64),
            ends_in_s=np.full(vms, np.inf),
        ),
        arrivals=came,
    )


def ahead(policy: str = "best_fit_drfh", **fields: Any) -> RunAheadOptions:
    made = policy_by_name(policy, {})
    told = {"samples": 12, "slot_length_s": 60.0, "budget_units": None, "horizon_s": 7200.0}
    return RunAheadOptions(policy=lambda _: made, **(told | fields))


def test_a_request_has_its_place_in_the_slot_after_a_vm_ends():
    """VMs live 600 s: that of 250 s has 350 s left, so the slot at 360 s places the first."""
    present = a_present([100.0, 250.0], demand=((4, 4096),) * 3, tenant=(0, 1, 2))

    waits_s = simulate_waits(present, every_life(600.0), ahead())

    assert waits_s.shape == (12, 3)
    assert set(waits_s.min(axis=1)) == {360.0}
    assert set(np.sort(waits_s, axis=1)[:, 1]) == {540.0}
    # The third waits for one of those that were just placed: 360 + 600 s, among slots
    # that are decided together.
    assert ((waits_s.max(axis=1) >= 960.0) & (waits_s.max(axis=1) <= 1020.0)).all()


def ending(
    present: CurrentState,
    *,
    running_s: list[float] | None = None,
    waiting_s: list[float] | None = None,
) -> CurrentState:
    """Return the same with requests whose time is over in so many seconds."""
    running = present.running
    if running_s is not None:
        running = dataclasses.replace(running, ends_in_s=np.array(running_s))
    ends = present.ends_in_s if waiting_s is None else np.array(waiting_s)
    return dataclasses.replace(present, running=running, ends_in_s=ends)


def test_a_vm_ends_with_its_request_at_the_latest():
    """VMs live 600 s; one is of a request that ends in 100 s, one of one that ends much later."""
    present = a_present([100.0, 250.0], demand=((4, 4096),) * 2, tenant=(0, 1))

    waits_s = simulate_waits(ending(present, running_s=[100.0, 5000.0]), every_life(600.0), ahead())

    assert np.sort(waits_s, axis=1).tolist() == [[120.0, 360.0]] * 12


def test_what_is_placed_ends_with_its_request_and_who_waits_leaves_with_it():
    """One host is free in 60 s: row 0 has it to 200 s, row 1 does not wait so long, row 2 does."""
    present = a_present([540.0], demand=((4, 4096),) * 3, tenant=(0, 1, 2), age=(9, 8, 0))

    waits_s = simulate_waits(
        ending(present, waiting_s=[200.0, 190.0, np.inf]), every_life(600.0), ahead("first_fit")
    )

    assert waits_s.tolist() == [[60.0, np.inf, 240.0]] * 12


def test_many_requests_that_end_are_lines_by_doublings_of_their_time():
    rows = 300
    present = a_present(
        [0.0], demand=((4, 4096),) * rows, tenant=tuple(row % 3 for row in range(rows))
    )
    ends_s = [*np.linspace(1000.0, 1020.0, rows - 3), 3000.0, np.inf, 3001.0]

    lines = merge_into_queues(ending(present, waiting_s=ends_s))

    # Of each tenant one line below 1024 s; beyond, two of 2048 s and more, and one without end.
    for row in range(rows):
        at = lines.present.ends_in_s[lines.queue[row]]
        assert ends_s[row] <= at <= 2 * ends_s[row]
    assert len(lines.present.snapshot.count) == 6


def test_who_comes_lately_is_in_the_way():
    """Tenant 1 asks for a host a minute; tenant 0 holds more, so it goes behind."""
    lonely = a_present([0.0, 200.0, 400.0], demand=((4, 4096),) * 2, tenant=(0, 1), count=(1, 0))
    came = RecentArrivals(
        at_s=np.arange(60) * 60.0,
        row=np.ones(60, np.int64),
        count=np.ones(60, np.int64),
        span_s=3600.0,
    )
    crowded = dataclasses.replace(lonely, arrivals=came)

    alone, among_many = (
        simulate_waits(each, every_life(600.0), ahead())[:, 0] for each in (lonely, crowded)
    )

    assert (alone == 240.0).all()
    assert (among_many > 240.0).all()


def test_what_cannot_be_placed_waits_beyond_the_horizon():
    present = a_present([0.0], demand=((5, 1024), (1, 1024)), tenant=(0, 0))

    waits_s = simulate_waits(present, every_life(600.0), ahead())

    assert np.isinf(waits_s[:, 0]).all()
    estimate = estimate_wait(waits_s[:, 0], slot_length_s=60.0, horizon_s=7200.0)
    assert estimate is not None
    assert estimate.half_s is None


def test_samples_are_the_same_again_and_however_many_there_are():
    ages_s = [30.0 * n for n in range(20)]
    present = a_present(ages_s, demand=((2, 2048),) * 9, tenant=(0, 1, 2) * 3)
    lives = some_lives()

    once, again, fewer = (
        simulate_waits(present, lives, ahead("fuga", samples=samples)) for samples in (6, 6, 3)
    )

    assert np.array_equal(once, again)
    assert np.array_equal(once[:3], fewer)
    assert len(np.unique(once)) > 2  # and not all the same


def test_time_that_is_up_costs_the_sample_that_is_not_finished():
    present = a_present([0.0] * 4, demand=((4, 4096),) * 4, tenant=(0, 1, 2, 3))
    asked = iter([False] * 7 + [True] * 100)

    waits_s = simulate_waits(present, some_lives(), ahead(), lambda: next(asked))

    assert 1 <= len(waits_s) < 12


@pytest.mark.parametrize("policy", ["best_fit_drfh", "first_fit_drfh", "first_fit", "fuga"])
def test_hosts_without_room_can_be_left_out(policy: str):
    """A decision on what `narrow_snapshot` shows is that on everything."""
    rng = np.random.default_rng(5)
    for _ in range(10):
        hosts = 60
        capacity = np.tile([[16, 65536]], (hosts, 1))
        free = np.where(rng.random((hosts, 1)) < 0.8, 0, rng.integers(1, 16, (hosts, 1)))
        free = np.hstack([free, free * 4096])
        snapshot = a_snapshot(
            capacity=capacity.tolist(),
            free=free.tolist(),
            host_class=rng.integers(0, 3, hosts).tolist(),
            demand=[[2, 8192], [4, 8192], [1, 2048], [3, 16384]],
            count=[9, 0, 4, 7],
            tenant=[0, 0, 1, 2],
            held=rng.integers(0, 50, (3, 2)).tolist(),
            eligible=[[True, True, True], [True] * 3, [False, True, True], [True] * 3],
            resources=("vcpus", "memory_mib"),
        )
        part = narrow_snapshot(snapshot)
        on_all, on_some = (
            decide(each, policy_by_name(policy, {}), seed=3, budget_units=None)
            for each in (snapshot, part.snapshot)
        )

        assert len(part.hosts) < hosts / 2
        assert (part.snapshot.pool == snapshot.pool).all()
        rows, places, counts = on_some.placed.T
        assert part.rows[rows].tolist() == on_all.placed[:, 0].tolist()
        assert counts.tolist() == on_all.placed[:, 2].tolist()
        if policy != "fuga":  # whose order of players is drawn from all hosts
            assert part.hosts[places].tolist() == on_all.placed[:, 1].tolist()


def test_requests_that_are_alike_stand_in_one_line():
    """Three hundred requests of two tenants are two rows; each is told its own turn."""
    number = 300
    present = a_present(
        [float(n) for n in range(number)],
        demand=((4, 4096),) * number,
        tenant=[n % 2 for n in range(number)],
        age=list(range(number)),
    )

    lines = merge_into_queues(present)
    waits_s = simulate_waits(present, every_life(900.0), ahead(samples=2))

    assert len(lines.present.snapshot.count) == 2
    assert lines.place[:6].tolist() == [1, 1, 2, 2, 3, 3]
    assert lines.present.snapshot.count.tolist() == [150, 150]
    for tenant in (0, 1):
        assert (np.diff(waits_s[0, tenant::2]) >= 0).all()
    assert np.isfinite(waits_s).all()


def test_steps_are_whole_slots_up_to_the_horizon():
    steps = decision_times(10.0, 604_800.0)

    assert steps[:12].tolist() == [10.0 * n for n in range(1, 13)]
    assert steps[-1] == 604_800.0
    assert len(steps) < 120
    assert (np.diff(steps) > 0).all()
    assert (steps[20:] / steps[19:-1]).max() < 1.11


def test_an_estimate_counts_one_more_outcome_than_samples():
    waits_s = np.arange(1, 41) * 60.0

    estimate = estimate_wait(waits_s, slot_length_s=60.0, horizon_s=3600.0)

    assert estimate is not None
    assert (estimate.low_s, estimate.half_s) == (2 * 60.0, 21 * 60.0)
    assert (estimate.nine_in_ten_s, estimate.high_s) == (37 * 60.0, 39 * 60.0)
    assert estimate_wait(waits_s[:9], slot_length_s=60.0, horizon_s=3600.0) is None
