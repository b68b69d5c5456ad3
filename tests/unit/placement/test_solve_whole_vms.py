from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from placement.mechanisms import MECHANISMS
from placement.solve.problem import (
    ProblemFileError,
    WholeVmProblem,
    read_problem,
    to_divisible,
    to_whole_vms,
)


def a_problem(**parts: Any) -> dict[str, Any]:
    return {
        "resources": ["vcpus", "memory_gib"],
        "hosts": [{"name": "s1", "capacity": [2, 12]}, {"name": "s2", "capacity": [12, 2]}],
        "tenants": [{"name": "u1"}, {"name": "u2"}],
        "demands": [a_demand()],
        **parts,
    }


def a_demand(**parts: Any) -> dict[str, Any]:
    return {"name": "j1", "tenant": "u1", "per_vm": [1, 1], **parts}


def whole(problem: dict[str, Any]) -> WholeVmProblem:
    return to_whole_vms(read_problem(json.dumps(problem).encode()))


def faults_of(problem: dict[str, Any]) -> list[str]:
    with pytest.raises(ProblemFileError) as caught:
        whole(problem)
    return [str(fault) for fault in caught.value.faults]


def test_decimals_are_scaled_exactly_each_resource_on_its_own_grid() -> None:
    snapshot = whole(a_problem(demands=[a_demand(per_vm=[0.2, 1.000001])])).snapshot

    assert snapshot.capacity.tolist() == [[10, 12_000_000], [60, 2_000_000]]
    assert snapshot.demand.tolist() == [[1, 1_000_001]]


def test_what_arithmetic_with_doubles_leaves_of_a_decimal_is_that_decimal() -> None:
    demands = [a_demand(per_vm=[0.1 + 0.2, 0.002587 + 5e-19])]

    snapshot = whole(a_problem(demands=demands)).snapshot

    assert snapshot.demand.tolist() == [[3, 2_587]]
    assert snapshot.capacity.tolist() == [[20, 12_000_000], [120, 2_000_000]]


def test_more_than_six_places_are_refused_with_their_place_though_mechanisms_take_them() -> None:
    problem = a_problem(demands=[a_demand(per_vm=[0.0234375, 1])])

    assert faults_of(problem) == [
        "demands[0].per_vm[0]: must have at most six decimal places for a policy that places "
        "whole VMs (mechanisms take more), found 0.0234375"
    ]
    divided = to_divisible(read_problem(json.dumps(problem).encode()), "drfh", MECHANISMS["drfh"])
    assert divided.divisible.demand[0, 0] == 0.0234375


def test_bytes_and_gib_end_in_the_same_integers() -> None:
    gib = 2**30
    in_bytes = a_problem(
        hosts=[
            {"name": "s1", "capacity": [2, 12 * gib]},
            {"name": "s2", "capacity": [12, 2 * gib]},
        ],
        demands=[a_demand(per_vm=[1, gib])],
    )

    assert whole(in_bytes).snapshot.capacity.tolist() == [[2, 12], [12, 2]]
    assert whole(a_problem()).snapshot.capacity.tolist() == [[2, 12], [12, 2]]


def test_a_class_is_as_many_hosts_in_file_order() -> None:
    hosts = [
        {"name": "s1", "capacity": [2, 12], "free": [1, 6], "count": 2},
        {"name": "s2", "capacity": [12, 2]},
    ]

    spread = whole(a_problem(hosts=hosts))

    assert spread.snapshot.capacity.tolist() == [[2, 12], [2, 12], [12, 2]]
    assert spread.snapshot.free.tolist() == [[1, 6], [1, 6], [12, 2]]
    assert spread.entry.tolist() == [0, 0, 1]
    assert spread.host_names() == ("s1#1", "s1#2", "s2")
    assert spread.host_indices() == {"s1": (0, 1), "s1#1": (0,), "s1#2": (1,), "s2": (2,)}


def test_labels_and_host_lists_decide_who_may_use_which_host() -> None:
    hosts = [
        {"name": "a", "capacity": [1, 1], "labels": ["ssd"]},
        {"name": "b", "capacity": [1, 1], "labels": ["ssd", "east"]},
        {"name": "c", "capacity": [1, 1]},
        {"name": "d", "capacity": [1, 1]},
    ]
    demands = [
        a_demand(name="any"),
        a_demand(name="ssd", requires=["ssd"]),
        a_demand(name="both", requires=["east", "ssd"]),
        a_demand(name="named", hosts=["c", "a"]),
        a_demand(name="named ssd", hosts=["c", "a"], requires=["ssd"]),
        a_demand(name="nowhere", requires=["gpu"]),
    ]

    snapshot = whole(a_problem(hosts=hosts, demands=demands)).snapshot

    per_host = snapshot.eligible[:, snapshot.host_class].astype(int)
    assert per_host.tolist() == [
        [1, 1, 1, 1],
        [1, 1, 0, 0],
        [0, 1, 0, 0],
        [1, 0, 1, 0],
        [1, 0, 0, 0],
        [0, 0, 0, 0],
    ]


def test_hosts_that_no_demand_tells_apart_are_one_class() -> None:
    hosts = [{"name": f"h{i}", "capacity": [i + 1, 8]} for i in range(5)]

    snapshot = whole(a_problem(hosts=hosts)).snapshot

    assert snapshot.host_class.tolist() == [0] * 5


def test_an_unbounded_count_is_bounded_by_the_free_capacity_of_its_hosts() -> None:
    hosts = [
        {"name": "s1", "capacity": [4, 9], "free": [2, 9], "count": 3},
        {"name": "s2", "capacity": [100, 100]},
    ]
    demands = [
        a_demand(name="a", hosts=["s1"], count=None),
        a_demand(name="nothing", per_vm=[0, 0], count=None),
        a_demand(name="finite", count=7),
        a_demand(name="nowhere", requires=["gpu"]),
    ]

    snapshot = whole(a_problem(hosts=hosts, demands=demands)).snapshot

    assert snapshot.count.tolist() == [6, 0, 7, 0]


def test_held_and_weights_reach_the_snapshot() -> None:
    tenants = [{"name": "u1", "held": [0.5, 3]}, {"name": "u2", "weight": 2.5}]

    snapshot = whole(a_problem(tenants=tenants)).snapshot

    assert snapshot.held.tolist() == [[1, 3], [0, 0]]
    np.testing.assert_array_equal(snapshot.weight, [1.0, 2.5])
    assert snapshot.capacity[:, 0].tolist() == [4, 24]


def test_min_count_of_nought_is_one() -> None:
    demands = [a_demand(name="a", min_count=0, count=3), a_demand(name="b", min_count=1, count=0)]

    assert whole(a_problem(demands=demands)).snapshot.min_count.tolist() == [1, 1]


def test_gangs_reach_the_snapshot() -> None:
    demands = [a_demand(name="a", min_count=3, count=4), a_demand(name="b", min_count=2)]

    assert whole(a_problem(demands=demands)).snapshot.min_count.tolist() == [3, 2]


def test_a_gang_without_a_count_wants_at_least_itself_though_it_never_fits() -> None:
    gang = whole(a_problem(demands=[a_demand(name="a", count=None, min_count=1000)])).snapshot

    assert gang.count.tolist() == [1000]


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (
            {"demands": [a_demand(speed={"s2": 1.5})]},
            "demands[0].speed.s2: speeds are for mechanisms",
        ),
        (
            {
                "hosts": [
                    {"name": "s", "capacity": [1, 1], "count": 3},
                    {"name": "s#3", "capacity": [1, 1]},
                ]
            },
            "hosts[1].name: is also the name of a host of the class 's'",
        ),
        (
            {
                "hosts": [{"name": "s", "capacity": [10**12, 1], "count": 1000}],
                "demands": [a_demand(per_vm=[0.000001, 1])],
            },
            "hosts: add up to 1.0e+21 of the smallest unit of 'vcpus'",
        ),
        ({"demands": [a_demand(per_vm=[10**12, 0.000001], count=10**9)]}, "demands: add up to"),
        (
            {
                "hosts": [{"name": "s", "capacity": [10**7, 10**7]}],
                "demands": [a_demand(per_vm=[1, 1])],
            },
            "demands: there is room for about 10,000,000 VMs; policies place at most 2,000,000",
        ),
        (
            {
                "hosts": [{"name": "s", "capacity": [1, 1], "count": 200_000}],
                "demands": [a_demand(name=f"j{i}", count=1) for i in range(10_001)],
            },
            "demands: 10,001 demands × 200,000 hosts must be at most 1,000,000,000",
        ),
    ],
)
def test_what_whole_vm_policies_cannot_do_is_refused(parts: dict[str, Any], message: str) -> None:
    faults = faults_of(a_problem(**parts))

    assert any(message in fault for fault in faults), faults


def test_a_speed_of_one_is_allowed() -> None:
    whole(a_problem(demands=[a_demand(speed={"s2": 1})]))
