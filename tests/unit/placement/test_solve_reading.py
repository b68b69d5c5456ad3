from __future__ import annotations

import copy
import json
import time
from decimal import Decimal
from typing import Any

import pytest

from placement.solve.problem import MAX_BYTES, ProblemFileError, read_problem

SMALL: dict[str, Any] = {
    "resources": ["vcpus", "memory_gib"],
    "hosts": [
        {"name": "s1", "capacity": [2, 12]},
        {"name": "s2", "capacity": [12, 2], "free": [6, 2], "count": 3, "labels": ["ssd"]},
    ],
    "tenants": [{"name": "u1"}, {"name": "u2", "weight": 2.5, "held": [6, 0]}],
    "demands": [
        {"name": "j1", "tenant": "u1", "per_vm": [0.2, 1]},
        {"name": "j2", "tenant": "u2", "per_vm": [1, 0.2], "count": 4},
    ],
}


def encoded(problem: object) -> bytes:
    return json.dumps(problem).encode()


def changed(**at: object) -> bytes:
    """Return SMALL with values replaced: hosts__0__count=3 sets hosts[0].count."""
    problem = copy.deepcopy(SMALL)
    for path, value in at.items():
        steps: list[Any] = [int(step) if step.isdigit() else step for step in path.split("__")]
        target: Any = problem
        for step in steps[:-1]:
            target = target[step]
        target[steps[-1]] = value
    return encoded(problem)


def faults_of(data: bytes) -> list[str]:
    with pytest.raises(ProblemFileError) as caught:
        read_problem(data)
    return [str(fault) for fault in caught.value.faults]


def test_defaults_are_those_of_the_contract() -> None:
    problem = read_problem(encoded(SMALL))

    host, demand = problem.hosts[0], problem.demands[0]
    assert (host.free, host.count, host.labels) == (host.capacity, 1, frozenset())
    assert (problem.tenants[0].weight, problem.tenants[0].parent) == (1.0, None)
    assert problem.tenants[0].held == (Decimal(0), Decimal(0))
    assert (demand.count, demand.min_count, demand.hosts) == (None, 1, None)
    assert (demand.requires, dict(demand.speed)) == (frozenset(), {})
    assert (dict(problem.parameters), problem.seed) == ({}, None)


def test_names_become_indices() -> None:
    data = changed(demands__0__hosts=["s2", "s1"], demands__0__speed={"s2": 2})

    demand = read_problem(data).demands[0]

    assert demand.hosts == (0, 1)
    assert dict(demand.speed) == {1: 2.0}


@pytest.mark.parametrize(
    ("at", "value", "message"),
    [
        ("hosts__0__capacity__1", -3, "hosts[0].capacity[1]: must be ≥ 0, found -3"),
        ("hosts__0__capacity__1", "3", 'hosts[0].capacity[1]: must be a number, found "3"'),
        ("hosts__0__capacity__1", True, "hosts[0].capacity[1]: must be a number, found true"),
        ("hosts__0__capacity__1", None, "hosts[0].capacity[1]: must be a number, found null"),
        (
            "hosts__0__capacity__0",
            10**13,
            "must be at most 1,000,000,000,000, found 10000000000000",
        ),
        (
            "hosts__0__capacity__0",
            10**3999,
            "must be a finite number, found a number of 4,000 char",
        ),
        ("hosts__0__capacity__0", 1e300, "must be at most 1,000,000,000,000, found 1E+300"),
        ("hosts__0__capacity", [1], "hosts[0].capacity: must have 2 numbers, one per resource"),
        ("hosts__0__capacity", 7, "hosts[0].capacity: must be a list of numbers, found 7"),
        (
            "hosts__0__free",
            [2, 13],
            "hosts[0].free[1]: must be at most the capacity (12), found 13",
        ),
        ("hosts__0__count", 0, "hosts[0].count: must be a whole number from 1 to 200,000, found 0"),
        ("hosts__0__count", 200_001, "hosts[0].count: must be a whole number from 1 to 200,000"),
        ("hosts__0__count", 200_000, "hosts: must be at most 200,000 hosts in all, found 200,003"),
        ("hosts__0__count", True, "hosts[0].count: must be a number, found true"),
        ("hosts__0__cuont", 3, 'hosts[0].cuont: unknown key; did you mean "count"?'),
        ("hosts__0__labels", "ssd", 'hosts[0].labels: must be a list of names, found "ssd"'),
        ("hosts__0__labels", ["a", "a"], 'hosts[0].labels[1]: stands twice: "a"'),
        ("hosts__1__name", "s1", 'hosts[1].name: "s1" is the name of hosts[0] already'),
        ("hosts__1__name", "", "hosts[1].name: must not be empty"),
        ("hosts__1__name", "a\nb", 'hosts[1].name: must be of printable characters, found "a\\nb"'),
        ("hosts__1__name", "\ud800", "hosts[1].name: must be of printable characters"),
        ("hosts__1__name", 5, "hosts[1].name: must be a name (a string), found 5"),
        ("hosts__1", [], "hosts[1]: must be an object, found an empty list"),
        ("hosts", [], "hosts: must not be empty"),
        ("hosts", {}, "hosts: must be a list, found an object"),
        ("resources", [], "resources: must not be empty"),
        ("resources", ["a", "a"], 'resources[1]: stands twice: "a"'),
        ("tenants", [], "tenants: must not be empty"),
        ("demands", [], "demands: must not be empty"),
        ("tenants__0__weight", 0, "tenants[0].weight: must be > 0, found 0"),
        ("tenants__0__weight", -1.5, "tenants[0].weight: must be > 0, found -1.5"),
        ("tenants__0__weight", 1e-200, "tenants[0].weight: must be from 1e-9 to 1e9, found 1E-200"),
        ("tenants__0__parent", "x", 'tenants[0].parent: no tenant has the name "x"; known: "u1",'),
        ("tenants__0__parent", "u1", 'tenants[0].parent: the tenants\' tree has a cycle: "u1" →'),
        ("tenants__0__held", [-1, 0], "tenants[0].held[0]: must be ≥ 0, found -1"),
        (
            "demands__0__tenant",
            "u3",
            'demands[0].tenant: no tenant has the name "u3"; known: "u1", "u2"',
        ),
        ("demands__0__per_vm", [1e-12, 1], "demands[0].per_vm[0]: must be 0 or at least 1e-9"),
        ("demands__0__count", 1.5, "demands[0].count: must be a whole number, found 1.5"),
        ("demands__0__count", -1, "demands[0].count: must be a whole number from 0 to"),
        ("demands__0__count", False, "demands[0].count: must be a number, found false"),
        ("demands__0__min_count", 0.5, "demands[0].min_count: must be a whole number, found 0.5"),
        (
            "demands__1__min_count",
            5,
            "demands[1].min_count: must be at most the count (4), found 5",
        ),
        ("demands__0__hosts", [], "demands[0].hosts: must not be empty; null stands for all hosts"),
        ("demands__0__hosts", ["s3"], 'demands[0].hosts[0]: no host has the name "s3"'),
        ("demands__0__speed", {"s9": 1}, 'demands[0].speed.s9: no host has the name "s9"'),
        ("demands__0__speed", {"s1": 0}, "demands[0].speed.s1: must be > 0, found 0"),
        ("demands__0__speed", [], "demands[0].speed: must be an object of host names and numbers"),
        ("parameters", [], "parameters: must be an object, found an empty list"),
        ("parameters", {"seed": -1}, "parameters.seed: must be a whole number from 0 to"),
        ("parameters", {"x": [[[[[[[[1]]]]]]]]}, "is nested too deeply"),
        ("policy", "fuga", "policy: unknown key"),
    ],
)
def test_a_fault_is_told_with_its_place(at: str, value: object, message: str) -> None:
    faults = faults_of(changed(**{at: value}))

    assert any(message in fault for fault in faults), faults


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is empty; expected one JSON object"),
        (b" \n\t", "is empty; expected one JSON object"),
        (b"[]", "must be an object, found an empty list"),
        (b"null", "must be an object, found null"),
        (b'{"resources": [}', "line 1, column 16: broken JSON: expected a JSON value"),
        (b'{\n  "a": 1,\n}', "line 3, column 1: broken JSON"),
        (b"{} {}", "line 1, column 4: broken JSON: the file goes on after the end"),
        (b'{"a": "\xff"}', "line 1, column 8: not UTF-8: found byte 0xff"),
        (b'{\n"\xc3\xa9": "\xc3"}', "line 2, column 7: not UTF-8: found byte 0xc3"),
        (b"\xff\xfe{\x00}\x00", "line 1, column 1: not UTF-8: found byte 0xff"),
        (b"[" * 1_000_000, "is nested too deeply"),
        (b'{"a":' * 500_000, "is nested too deeply"),
    ],
)
def test_broken_syntax_is_told_with_line_and_column(data: bytes, message: str) -> None:
    faults = faults_of(data)

    assert any(message in fault for fault in faults), faults


@pytest.mark.parametrize("literal", ["NaN", "Infinity", "-Infinity"])
def test_a_literal_that_json_does_not_know_is_no_number(literal: str) -> None:
    data = encoded(SMALL).replace(b"[2, 12]", f"[2, {literal}]".encode())

    assert faults_of(data) == [f"hosts[0].capacity[1]: must be a finite number, found {literal}"]


@pytest.mark.parametrize("number", ["1" * 1_000_000, "0." + "1" * 1_000_000, "1e" + "9" * 50])
def test_a_number_of_a_million_digits_is_refused_before_it_is_converted(number: str) -> None:
    data = encoded(SMALL).replace(b"[2, 12]", f"[2, {number}]".encode())

    (fault,) = faults_of(data)

    assert "hosts[0].capacity[1]: must be a finite number, found" in fault
    assert len(fault) < 200


def test_a_key_that_stands_twice_is_a_fault() -> None:
    data = encoded(SMALL).replace(b'"count": 4', b'"count": 4, "count": 5')

    assert faults_of(data) == ["demands[1].count: this key stands more than once"]


def test_missing_keys_are_named() -> None:
    assert faults_of(b"{}") == [
        "resources: is missing",
        "hosts: is missing",
        "tenants: is missing",
        "demands: is missing",
    ]


def test_a_byte_order_mark_is_skipped() -> None:
    assert read_problem(b"\xef\xbb\xbf" + encoded(SMALL)).resources == ("vcpus", "memory_gib")


@pytest.mark.parametrize("levels", [100, 101])
def test_a_tree_of_tenants_has_a_hundred_levels_at_most(levels: int) -> None:
    chain = [{"name": f"g{n}", "parent": f"g{n - 1}" if n else None} for n in range(levels)]
    demands = [{"name": "j", "tenant": f"g{levels - 1}", "per_vm": [1, 1]}]
    data = changed(tenants=chain, demands=demands)

    if levels == 100:
        assert len(read_problem(data).tenants) == 100
        return
    with pytest.raises(ProblemFileError, match=r"tenants\[100\]\.parent: .* at most 100 levels"):
        read_problem(data)


def test_whole_numbers_may_be_written_with_a_point() -> None:
    problem = read_problem(encoded(SMALL).replace(b'"count": 4', b'"count": 4.0'))

    assert problem.demands[1].count == 4


def test_trailing_zeros_are_not_decimal_places() -> None:
    problem = read_problem(encoded(SMALL).replace(b"0.2, 1]", b"0.20000000000, 1]"))

    assert problem.demands[0].per_vm[0] == Decimal("0.2")


def test_only_the_first_twenty_faults_are_told() -> None:
    data = changed(demands=[{"name": f"j{i}"} for i in range(50)])

    with pytest.raises(ProblemFileError) as caught:
        read_problem(data)

    assert len(caught.value.faults) == 20
    assert caught.value.more


def test_a_long_cycle_is_found_once() -> None:
    tenants = [{"name": f"t{i}", "parent": f"t{(i + 1) % 1000}"} for i in range(1000)]
    problem = {**SMALL, "tenants": tenants, "demands": [{**SMALL["demands"][0], "tenant": "t0"}]}

    faults = faults_of(encoded(problem))

    assert len(faults) == 1
    assert "tenants[0].parent: the tenants' tree has a cycle" in faults[0]


@pytest.mark.parametrize(
    "rubbish",
    [
        b"x" * 50_000_000,
        b"[" + b"1," * 15_000_000,
        b'{"hosts": [' + b"{}," * 10_000_000,
        b'"' + b"a" * 33_000_000,
        b'{"resources": [' + b'"a",' * 8_000_000 + b'"a"]}',
        b"\x00" * (MAX_BYTES + 1),
    ],
    ids=["letters", "numbers", "objects", "string", "names", "zeros"],
)
def test_a_large_file_of_rubbish_is_refused_soon(rubbish: bytes) -> None:
    started_s = time.process_time()

    faults_of(rubbish)

    assert time.process_time() - started_s < 30
