"""Prices of a round: one more unit, solved again, and brute force, as oracles."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import optimize

from placement import PlacementError, Snapshot
from placement.metrics import prices as module
from placement.metrics.fair_holdings import fair_vms
from placement.metrics.prices import Prices, round_prices
from tests.builders import a_snapshot


def priced(snapshot: Snapshot, resource: int = 0) -> Prices:
    return round_prices(snapshot, fair_vms(snapshot), resource)


def test_a_resource_that_binds_is_worth_what_one_more_unit_brings():
    # Both VMs that could be told apart want 2 cores; 5 are free, and memory is not short.
    snapshot = a_snapshot(capacity=[(8, 64)], free=[(5, 64)], demand=[(2, 4)], count=9)

    found = priced(snapshot)

    assert found.maximum == pytest.approx(5)
    (of_class,) = found.classes
    assert of_class.price.tolist() == pytest.approx([1.0, 0.0])
    assert priced(snapshot, 1).classes[0].price.tolist() == pytest.approx([2.0, 0.0])


def test_where_all_that_wait_find_room_nothing_has_a_price():
    found = priced(a_snapshot(capacity=[(8, 64)] * 2, demand=[(2, 4)], count=3))

    assert found.maximum == found.fair == pytest.approx(6)
    assert found.price_of_fairness == 0
    assert not found.classes[0].price.any()


def test_an_empty_host_for_which_too_much_is_asked_is_priced():
    found = priced(a_snapshot(capacity=[(8, 64)], demand=[(2, 4)], count=9))

    assert found.maximum == pytest.approx(8)
    assert found.classes[0].price.tolist() == pytest.approx([1.0, 0.0])


def test_a_full_class_is_priced_and_pieces_that_serve_nobody_are_no_room():
    full = priced(a_snapshot(capacity=[(8, 64)], free=[(0, 64)], demand=[(2, 4)], count=9))
    pieces = a_snapshot(capacity=[(8, 64)] * 9, free=[(1, 64)] * 9, demand=[(2, 4)], count=9)

    assert f"{full.maximum:g}" == "0"  # not -0
    assert full.classes[0].price.tolist() == pytest.approx([1.0, 0.0])
    assert priced(pieces).classes[0].room.tolist() == [0, 9 * 64]
    assert priced(pieces).classes[0].price.tolist() == pytest.approx([1.0, 0.0])


def test_fairness_costs_what_the_owed_bring_less():
    # Who is owed most asks for VMs with much memory and few cores; memory ends first.
    snapshot = a_snapshot(
        capacity=[(16, 16)],
        demand=[(1, 4), (4, 4)],
        count=[9, 9],
        held=[(0, 0), (8, 8)],
        free=[(8, 8)],
    )

    found = priced(snapshot)

    assert found.maximum == pytest.approx(8)  # two VMs of four cores
    assert found.fair == pytest.approx(2)  # the other tenant is below, and takes all the memory
    assert found.price_of_fairness == pytest.approx(6)


def test_closed_classes_and_empty_clusters_have_no_prices():
    assert priced(a_snapshot(eligible=[(False,)])).classes == ()
    assert priced(a_snapshot(capacity=[], demand=[(1, 1)])).maximum == 0


def test_a_program_that_is_too_large_or_does_not_end_is_an_error(monkeypatch):
    snapshot = a_snapshot(capacity=[(8, 64)], demand=[(2, 4), (1, 1)], count=9)

    monkeypatch.setattr(module, "MAX_PAIRS", 1)
    with pytest.raises(PlacementError, match="2 unknowns, at most 1"):
        priced(snapshot)
    monkeypatch.setattr(module, "MAX_PAIRS", 20)
    monkeypatch.setattr(module, "MAX_ITERATIONS", 0)
    with pytest.raises(PlacementError, match="prices: solver status 1"):
        priced(a_random_round(np.random.default_rng(3)))


def a_random_round(rng: np.random.Generator) -> Snapshot:
    hosts, requests, classes, resources = 6, 5, 2, 3
    capacity = rng.choice([8, 16], (2, resources))[rng.integers(0, 2, hosts)]
    return a_snapshot(
        capacity=capacity.tolist(),
        free=np.minimum(capacity, rng.integers(0, 30, (hosts, resources))).tolist(),
        demand=rng.integers([1, 0, 0], 6, (requests, resources)).tolist(),
        count=rng.integers(1, 9, requests).tolist(),
        host_class=rng.integers(0, classes, hosts).tolist(),
        eligible=(rng.random((requests, classes)) < 0.8).tolist(),
    )


def rooms(snapshot: Snapshot) -> dict[tuple, np.ndarray]:
    """Room by class and capacity, as the manual words it."""
    found: dict[tuple, np.ndarray] = {}
    for host, of in enumerate(snapshot.host_class.tolist()):
        key = (of, *snapshot.capacity[host].tolist())
        room = found.setdefault(key, np.zeros(len(snapshot.resources)))
        there = [q for q in range(len(snapshot.count)) if may_go(snapshot, q, key)]
        for r in range(len(room)):
            demands = [d for q in there if (d := snapshot.demand[q, r]) > 0]
            if demands and snapshot.free[host, r] >= min(demands):
                room[r] += snapshot.free[host, r]
    return found


def may_go(snapshot: Snapshot, request: int, key: tuple) -> bool:
    fits = all(d <= c for d, c in zip(snapshot.demand[request], key[1:], strict=True))
    return bool(snapshot.eligible[request, key[0]]) and fits


def solved(snapshot: Snapshot, room: dict[tuple, np.ndarray], counts: np.ndarray) -> float:
    """The most of resource 0, request by request and unscaled."""
    keys, requests = list(room), range(len(snapshot.count))
    pairs = [(k, q) for k in keys for q in requests if may_go(snapshot, q, k)]
    if not pairs:
        return 0.0
    rows, limits = [], []
    for k, r in itertools.product(keys, range(len(snapshot.resources))):
        rows.append([float(snapshot.demand[q, r]) if k == at else 0.0 for at, q in pairs])
        limits.append(room[k][r])
    for q in requests:
        rows.append([float(q == requested) for _, requested in pairs])
        limits.append(counts[q])
    gain = [-float(snapshot.demand[q, 0]) for _, q in pairs]
    return float(-optimize.linprog(gain, A_ub=rows, b_ub=limits, method="highs-ipm").fun)


@pytest.mark.parametrize("seed", range(15))
def test_prices_are_what_one_more_unit_brings_and_one_less_costs(seed):
    snapshot = a_random_round(np.random.default_rng(seed))
    room = rooms(snapshot)

    found = priced(snapshot)

    assert found.maximum == pytest.approx(solved(snapshot, room, snapshot.count), abs=1e-6)
    fair = solved(snapshot, room, fair_vms(snapshot))
    assert found.fair == pytest.approx(fair, abs=1e-6)
    assert found.price_of_fairness >= 0
    step = 1e-3  # less than a unit, too, so that few kinks lie between
    for of_class in found.classes:
        key = (snapshot.host_class[of_class.host], *snapshot.capacity[of_class.host].tolist())
        assert of_class.room.tolist() == room[key].tolist()
        for r, price in enumerate(of_class.price.tolist()):
            for unit in (1.0, step):
                more = {**room, key: room[key] + unit * np.eye(len(room[key]))[r]}
                assert solved(snapshot, more, snapshot.count) - found.maximum <= unit * price + 1e-6
                if room[key][r] >= unit:
                    less = {**room, key: room[key] - unit * np.eye(len(room[key]))[r]}
                    lost = found.maximum - solved(snapshot, less, snapshot.count)
                    assert lost >= unit * price - 1e-6


@pytest.mark.parametrize("seed", range(12))
def test_the_most_and_the_price_of_fairness_are_those_of_brute_force(seed):
    """VMs of one core on tiny clusters: there whole VMs reach what parts of VMs would."""
    rng = np.random.default_rng(seed)
    snapshot = a_snapshot(
        capacity=[(4, 4), (4, 4)],
        free=rng.integers(0, 5, (2, 2)).tolist(),
        demand=[(1, 0), (1, 1), (0, 1)],
        count=rng.integers(1, 5, 3).tolist(),
        tenant=[0, 1, 2],
        held=rng.integers(0, 3, (3, 2)).tolist(),
    )
    room = rooms(snapshot)[(0, 4, 4)]

    def most(limits: np.ndarray) -> float:
        # Parts of VMs in steps of a twelfth: targets of so few VMs are such.
        best = 0.0
        for a, b in itertools.product(*(np.arange(0, n + 1e-9, 1 / 12) for n in limits[:2])):
            if a + b <= room[0] + 1e-9 and b <= room[1] + 1e-9:
                best = max(best, a + b)
        return best

    found = priced(snapshot)

    assert found.maximum == pytest.approx(most(snapshot.count))
    assert found.fair == pytest.approx(most(fair_vms(snapshot)), abs=1 / 6)
    assert found.price_of_fairness == pytest.approx(
        found.maximum - most(fair_vms(snapshot)), abs=1 / 6
    )
