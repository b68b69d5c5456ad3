"""The catalogue, the parameters, and the policies on cases that say something."""

from __future__ import annotations

import numpy as np
import pytest

from placement import (
    POLICIES,
    Budget,
    ParameterError,
    Reason,
    UnknownPolicyError,
    check_allocation,
    policy_by_name,
    set_aside_unplaceable,
    shares_after,
)
from tests.builders import a_snapshot


def place(snapshot, name="fuga", units=None, **parameters):
    policy = policy_by_name(name, parameters)
    allocation = policy.place(snapshot, np.random.default_rng(0), Budget(units))
    check_allocation(snapshot, allocation)
    return allocation


def test_an_unknown_policy_is_refused_with_those_that_are_near():
    with pytest.raises(UnknownPolicyError, match="best_fit_drfh"):
        policy_by_name("best_fit_drf", {})


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_either_holds_hosts_back_for_who_starves_or_says_that_it_is_not_fair(name):
    entry = POLICIES[name]

    assert ("patience" in entry.parameters) == ("not fair" not in entry.summary)
    assert ("patience" in entry.parameters) == ("no fairness" not in entry.guarantees)


def test_what_only_another_policy_reads_is_passed_over():
    policy_by_name("first_fit", {"alpha": 3, "eta": 2})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("alpha", 1),
        ("alpha", float("nan")),
        ("alpha", True),
        ("eta", 0),
        ("eta", 2.5),
        ("overload", 0),
        ("overload", 1.01),
        ("equilibrium", "nash"),
        ("quota", 1),
        ("ranking", "vcpus"),
        ("ranking", []),
        ("ranking", ["vcpus", "vcpus"]),
        ("sweeps", -1),
        ("strategies", {"x": [[1]]}),
        ("strategies", {"0": [[-1]]}),
        ("strategies", {"0": []}),
        ("patience", -1),
        ("patience", 1.5),
        ("patience", True),
        ("held_part", 0),
        ("held_part", 1.1),
        ("colour", "blue"),
    ],
)
def test_a_parameter_that_is_not_allowed_is_refused_by_name(name, value):
    with pytest.raises(ParameterError, match=name):
        policy_by_name("fuga", {name: value})


@pytest.mark.parametrize(
    "parameters",
    [
        {"ranking": ["gpu"]},
        {"strategies": {"3": [[1]]}},
        {"strategies": {"0": [[1, 1]]}},
        {"strategies": {"0": [[5]]}},
    ],
)
def test_a_parameter_that_the_snapshot_does_not_know_is_refused(parameters):
    with pytest.raises(ParameterError):
        place(a_snapshot(count=9), **parameters)


def test_an_exact_equilibrium_of_a_large_game_is_refused():
    rng = np.random.default_rng(1)
    hosts, types = rng.integers(8, 64, (40, 2)), rng.integers(1, 8, (6, 2))
    snapshot = a_snapshot(capacity=hosts, demand=types, count=200, resources=("cpu", "gib"))

    with pytest.raises(ParameterError, match="of 40 hosts has more than 2,000,000 subgames"):
        place(snapshot, equilibrium="exact")


def test_hosts_alike_share_subgames():
    snapshot = a_snapshot(
        capacity=[(8, 16)] * 8 + [(8, 32)] * 8, demand=[(1, 1), (1, 3), (2, 6)], count=20
    )

    [game] = place(snapshot, quota=False).details["games"]

    assert (game["equilibrium"], game["certified"]) == ("exact", True)
    assert game["subgames"] < 5_000  # of 5^16 leaves
    [within] = place(snapshot, quota=False, subgames=100).details["games"]
    assert (within["equilibrium"], within["certified"]) == ("sweeps", True)


def test_where_nobody_has_a_choice_the_game_is_certified():
    snapshot = a_snapshot(capacity=[[4, 4]] * 1_200, demand=[[1, 1]], count=4_800)

    allocation = place(snapshot, eta=1)

    assert [game["certified"] for game in allocation.details["games"]] == [True]
    assert allocation.placed[:, 2].sum() == 4_800


@pytest.mark.parametrize("name", POLICIES)
def test_an_empty_cluster_leaves_everything_out(name):
    allocation = place(a_snapshot(capacity=[], demand=[(1, 1, 1)], count=2), name)

    assert [(each.count, each.reason) for each in allocation.left_out] == [
        (2, Reason.NO_ELIGIBLE_HOST)
    ]


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"demand": [(0, 0, 0)]}, Reason.NOTHING_ASKED),
        ({"demand": [(5, 1, 1)]}, Reason.NO_HOST_LARGE_ENOUGH),
        ({"demand": [(5, 1, 1)], "eligible": [(False,)]}, Reason.NO_HOST_LARGE_ENOUGH),
        ({"eligible": [(False,)]}, Reason.NO_ELIGIBLE_HOST),
        ({"free": [(0, 8192, 100)]}, Reason.NO_ROOM),
    ],
)
def test_what_is_left_out_says_why(name, changes, reason):
    allocation = place(a_snapshot(**changes), name)

    assert [each.reason for each in allocation.left_out] == [reason]


def test_large_hosts_that_are_closed_do_not_make_room_for_a_large_vm():
    snapshot = a_snapshot(
        capacity=[(2, 2, 2), (9, 9, 9)],
        demand=[(5, 1, 1)],
        host_class=[0, 1],
        eligible=[(True, False)],
    )

    _, aside = set_aside_unplaceable(snapshot)

    assert [each.reason for each in aside] == [Reason.NO_HOST_LARGE_ENOUGH]


def test_setting_aside_keeps_the_rest_as_it_was():
    snapshot = a_snapshot(demand=[(9, 9, 9), (1, 1024, 5)], count=[3, 2])

    rest, aside = set_aside_unplaceable(snapshot)

    assert [(each.request, each.count) for each in aside] == [(0, 3)]
    assert rest.count.tolist() == [0, 2]
    assert snapshot.count.tolist() == [3, 2]


def test_room_above_the_threshold_stays_empty_and_the_reason_says_so():
    allocation = place(a_snapshot(capacity=[(4, 4096, 100)], count=4), overload=0.75)

    assert allocation.placed.tolist() == [[0, 0, 3]]
    assert [each.reason for each in allocation.left_out] == [Reason.ABOVE_OVERLOAD]


def test_first_fit_serves_requests_in_order_and_fills_hosts_in_order():
    snapshot = a_snapshot(capacity=[(2, 9, 9), (3, 9, 9)], demand=[(1, 1, 1)] * 2, count=3)

    assert place(snapshot, "first_fit").placed.tolist() == [[0, 0, 2], [0, 1, 1], [1, 1, 2]]


def test_equal_tenants_of_equal_wishes_get_equal_parts():
    snapshot = a_snapshot(capacity=[(4, 8192, 500)] * 6, demand=[(1, 1024, 5)] * 3, count=20)

    for name in ("fuga", "best_fit_drfh"):
        shares = shares_after(snapshot, place(snapshot, name))
        assert shares == pytest.approx([1 / 3] * 3)


def test_who_runs_more_already_is_served_less():
    snapshot = a_snapshot(
        capacity=[(8, 8, 8), (4, 4, 4)],
        free=[(4, 4, 4), (4, 4, 4)],
        demand=[(1, 1, 1), (1, 1, 1)],
        count=10,
        held=[(4, 4, 4), (0, 0, 0)],
    )

    allocation = place(snapshot)

    assert shares_after(snapshot, allocation) == pytest.approx([0.5, 0.5])


def test_a_budget_of_nothing_leaves_the_round_to_best_fit():
    snapshot = a_snapshot(capacity=[(4, 8192, 500)] * 3, count=20)

    allocation = place(snapshot, units=0)

    assert allocation.cut
    assert allocation.work == 0
    assert allocation.placed[:, 2].sum() == 12
    assert any("budget" in cut or "combinations" in cut for cut in allocation.details["cuts"])


def test_a_host_without_a_ranking_resource_does_not_play_but_takes_the_rest():
    snapshot = a_snapshot(
        capacity=[(4, 8, 0), (4, 8, 0)], free=[(4, 0, 0), (4, 8, 0)], demand=[(1, 0, 0)], count=8
    )

    allocation = place(snapshot, ranking=None)

    assert 0 not in allocation.details["order"]
    assert allocation.left_out == ()


def test_each_placed_vm_is_from_the_game_or_from_the_remainder():
    snapshot = a_snapshot(
        capacity=[(4, 8192, 500)] * 5, demand=[(1, 1024, 5), (2, 6144, 30)], count=7
    )

    allocation = place(snapshot)

    rows = [[q, h, game + rest] for q, h, game, rest in allocation.details["phase"]]
    assert rows == allocation.placed.tolist()


def test_hosts_alike_do_not_all_choose_alike():
    snapshot = a_snapshot(
        capacity=[(64, 262144, 9000)] * 10,
        demand=[(1, 3072, 15), (2, 6144, 30), (4, 12288, 60), (8, 24576, 60)],
        count=400,
    )

    allocation = place(snapshot, quota=False)

    chosen = {tuple(counts) for counts in allocation.details["strategies"].values()}
    assert len(chosen) > 1
