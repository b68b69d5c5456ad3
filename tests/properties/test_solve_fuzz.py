"""Whatever stands in a problem file, `fuga solve` answers or refuses; it never breaks."""

from __future__ import annotations

import contextlib
import copy
import io
import json
import sys
from collections.abc import Iterator
from fractions import Fraction
from typing import Any, NamedTuple
from unittest import mock

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import placement
from controller.cli.problems import solve
from placement.mechanisms import MECHANISMS

#: Placed in milliseconds whatever the problem; `optimal` searches.
POLICIES = tuple(name for name in placement.POLICIES if name != "optimal")

policies = st.sampled_from(POLICIES)
anything = st.sampled_from([*placement.POLICIES, *MECHANISMS])
bounded = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


class Ended(NamedTuple):
    status: int
    out: str
    err: str


def run(data: bytes, *arguments: str) -> Ended:
    out, err = io.StringIO(), io.StringIO()
    argv = ["fuga solve", "-", *arguments]
    stdin = io.TextIOWrapper(io.BytesIO(data))
    with (
        mock.patch.object(sys, "argv", argv),
        mock.patch.object(sys, "stdin", stdin),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            solve.main()
        except SystemExit as ended:
            return Ended(int(ended.code or 0), out.getvalue(), err.getvalue())
    return Ended(0, out.getvalue(), err.getvalue())


def refuse_literal(literal: str) -> None:
    raise AssertionError(f"{literal} is not strict JSON")


def answered_or_refused(ended: Ended) -> dict[str, Any] | None:
    assert ended.status in (0, 2)
    assert "Traceback" not in ended.err
    if ended.status == 2:
        assert ended.out == ""
        assert ended.err.startswith("fuga: ")
        assert len(ended.err) < 20_000
        return None
    assert ended.err == ""
    value = json.loads(ended.out, parse_constant=refuse_literal)
    assert isinstance(value, dict)
    return value


# ------------------------------------------------------------------- problems

amounts = st.one_of(st.integers(0, 20), st.sampled_from([0.5, 0.1, 0.000001, 2.25, 16384, 10**6]))


@st.composite
def problems(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a valid problem, small enough to be solved in milliseconds."""
    width = draw(st.integers(1, 3))
    vector = st.lists(st.integers(0, 12), min_size=width, max_size=width)
    labels = st.lists(st.sampled_from(["ssd", "gpu"]), unique=True, max_size=2)
    hosts = [
        draw(
            st.fixed_dictionaries(
                {"name": st.just(f"h{i}"), "capacity": vector},
                optional={"count": st.integers(1, 3), "labels": labels},
            )
        )
        for i in range(draw(st.integers(1, 3)))
    ]
    for host in hosts:
        if draw(st.booleans()):
            host["free"] = [draw(st.integers(0, whole)) for whole in host["capacity"]]  # type: ignore[attr-defined]
    tenants = [
        draw(
            st.fixed_dictionaries(
                {"name": st.just(f"t{i}")},
                optional={"weight": st.sampled_from([0.5, 1, 3]), "held": vector},
            )
        )
        for i in range(draw(st.integers(1, 3)))
    ]
    asking = [tenant["name"] for tenant in tenants]
    groups: list[dict[str, Any]] = []
    for i in range(draw(st.integers(0, 2))):
        groups.append({"name": f"g{i}", "weight": draw(st.sampled_from([1, 2.5]))})
        if i and draw(st.booleans()):
            groups[i]["parent"] = "g0"
    for tenant in tenants if groups else ():
        tenant["parent"] = draw(st.sampled_from([None, *(group["name"] for group in groups)]))
    tenants += groups
    names = [host["name"] for host in hosts]
    halves = st.integers(0, 12).map(lambda half: half / 2)
    demands = [
        draw(
            st.fixed_dictionaries(
                {
                    "name": st.just(f"d{i}"),
                    "tenant": st.sampled_from(asking),
                    "per_vm": st.lists(halves, min_size=width, max_size=width),
                },
                optional={
                    "count": st.one_of(st.none(), st.integers(0, 6)),
                    "min_count": st.integers(0, 1),
                    "hosts": st.lists(st.sampled_from(names), min_size=1, unique=True),
                    "requires": labels,
                },
            )
        )
        for i in range(draw(st.integers(1, 4)))
    ]
    return {
        "resources": [f"r{i}" for i in range(width)],
        "hosts": hosts,
        "tenants": tenants,
        "demands": demands,
        "parameters": {"seed": draw(st.integers(0, 5))},
    }


EDGE_NUMBERS = (0, -1, 1, 1.5, -0.0, 1e-7, 1e-320, 1e19, 2**63, 10**30, 1e308, float("inf"))
junk = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.sampled_from(EDGE_NUMBERS),
        st.floats(),
        st.integers(),
        st.text(max_size=8),
        st.sampled_from(["h0", "t0", "d0", "r0", "ssd", "\ud800", "\x00", "[red]"]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=6,
)
HOST_AND_TENANT = ("name", "capacity", "free", "count", "labels", "weight", "parent", "held")
DEMAND = ("tenant", "per_vm", "min_count", "hosts", "requires", "speed")
keys = st.sampled_from([*HOST_AND_TENANT, *DEMAND, "parameters", "alpha", "strategies"])


def spots(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every (container, key) of a JSON value."""
    entries = value.items() if isinstance(value, dict) else enumerate(value)
    for key, each in list(entries):
        yield value, key
        if isinstance(each, dict | list):
            yield from spots(each)


# ---------------------------------------------------------------------- tests


@bounded
@given(data=st.binary(max_size=200), policy=anything)
def test_random_bytes_are_refused(data: bytes, policy: str) -> None:
    assert answered_or_refused(run(data, "--policy", policy, "-o", "json")) is None


@bounded
@given(value=junk, policy=anything)
def test_random_json_is_refused(value: Any, policy: str) -> None:
    data = json.dumps(value).encode()

    assert answered_or_refused(run(data, "--policy", policy, "-o", "json")) is None


@bounded
@given(data=st.data(), policy=anything, output=st.sampled_from(["json", "table"]))
def test_a_problem_with_junk_in_it_is_answered_or_refused(
    data: st.DataObject, policy: str, output: str
) -> None:
    problem = copy.deepcopy(data.draw(problems()))
    for _ in range(data.draw(st.integers(1, 3))):
        container, key = data.draw(st.sampled_from(list(spots(problem))))
        change = data.draw(st.sampled_from(["replace", "add", "drop"]))
        if change == "replace":
            container[key] = data.draw(junk)
        elif change == "add" and isinstance(container, dict):
            container[data.draw(keys)] = data.draw(junk)
        else:
            del container[key]

    ended = run(json.dumps(problem).encode(), "--policy", policy, "-o", output)

    if output == "json":
        answered_or_refused(ended)
    else:
        assert ended.status in (0, 2)


@bounded
@given(data=st.data(), policy=anything)
def test_a_problem_with_broken_bytes_is_answered_or_refused(
    data: st.DataObject, policy: str
) -> None:
    text = bytearray(json.dumps(data.draw(problems())).encode())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text)))
        text[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))

    answered_or_refused(run(bytes(text), "--policy", policy, "-o", "json"))


PARAMETERS = ("alpha", "eta", "overload", "ranking", "equilibrium", "quota", "fallback", "slots")


@bounded
@given(
    problem=problems(),
    policy=anything,
    parameters=st.dictionaries(
        st.sampled_from([*PARAMETERS, "sweeps", "strategies", "seed", "other"]), junk, max_size=3
    ),
)
def test_random_parameters_are_taken_or_refused(
    problem: dict[str, Any], policy: str, parameters: dict[str, Any]
) -> None:
    data = json.dumps({**problem, "parameters": parameters}).encode()

    answered_or_refused(run(data, "--policy", policy, "-o", "json", "--details"))


@bounded
@given(
    problem=problems(),
    policy=policies,
    parameters=st.fixed_dictionaries(
        {},
        optional={
            "alpha": st.sampled_from([1.0001, 1.5, 2, 3.7, 30]),
            "eta": st.integers(1, 6),
            "overload": st.sampled_from([0.3, 0.8, 1.0]),
            "equilibrium": st.sampled_from(["auto", "sequential", "sweeps"]),
            "quota": st.booleans(),
        },
    ),
)
def test_a_valid_problem_is_answered_as_the_contract_says(
    problem: dict[str, Any], policy: str, parameters: dict[str, Any]
) -> None:
    problem = {**problem, "parameters": {**problem["parameters"], **parameters}}

    ended = run(json.dumps(problem).encode(), "--policy", policy, "-o", "json", "--details")

    answer = answered_or_refused(ended)
    assert answer is not None, ended.err
    demands = {each["name"]: each for each in problem["demands"]}
    placed = dict.fromkeys(demands, 0)
    used: dict[str, list[Fraction]] = {}
    for each in answer["tasks"]:
        demand = demands[each["demand"]]
        assert each["tasks"] > 0
        assert demand.get("hosts") is None or each["host"] in demand["hosts"]
        placed[each["demand"]] += each["tasks"]
        sums = used.setdefault(each["host"], [Fraction(0)] * len(problem["resources"]))
        for r, amount in enumerate(demand["per_vm"]):
            sums[r] += each["tasks"] * Fraction(str(amount))
    for host in problem["hosts"]:
        offered = host.get("free", host["capacity"])
        for amount, free in zip(used.get(host["name"], []), offered, strict=False):
            assert amount <= free * host.get("count", 1)
    for name, demand in demands.items():
        out = [each for each in answer["left_out"] if each["demand"] == name]
        if demand.get("count") is None:
            assert out == []
        else:
            assert placed[name] + sum(each["count"] for each in out) == demand["count"]
    pool = [
        sum(host["capacity"][r] * host.get("count", 1) for host in problem["hosts"])
        for r in range(len(problem["resources"]))
    ]
    for tenant, shown in zip(problem["tenants"], answer["tenants"], strict=True):
        below = names_below(problem, tenant["name"])
        holds = [Fraction(0)] * len(pool)
        for each in problem["tenants"]:
            if each["name"] in below:
                held = each.get("held", [0] * len(pool))
                holds = [a + Fraction(b) for a, b in zip(holds, held, strict=True)]
        for name, demand in demands.items():
            if demand["tenant"] in below:
                for r, amount in enumerate(demand["per_vm"]):
                    holds[r] += placed[name] * Fraction(str(amount))
        share = max(
            (amount / whole for amount, whole in zip(holds, pool, strict=True) if whole), default=0
        )
        assert abs(shown["dominant_share"] - float(share)) < 1e-9
        assert answer["details"]["shares"][tenant["name"]]["after"] == shown["dominant_share"]
    for name, most in answer["details"]["utilization_bound"].items():
        assert answer["utilization"][name] <= most + 1e-6


def names_below(problem: dict[str, Any], name: str) -> set[str]:
    """Return a tenant's name and those of all below it."""
    names = {name}
    for _ in problem["tenants"]:
        names |= {each["name"] for each in problem["tenants"] if each.get("parent") in names}
    return names


@bounded
@given(problem=problems(), mechanism=st.sampled_from(sorted(MECHANISMS)))
def test_a_valid_problem_is_divided_as_the_contract_says(
    problem: dict[str, Any], mechanism: str
) -> None:
    first: dict[str, dict[str, Any]] = {}
    for demand in problem["demands"]:
        first.setdefault(demand["tenant"], demand)
        if mechanism == "per_server_drf":
            demand["count"] = None
    problem["demands"] = list(first.values())
    if not MECHANISMS[mechanism].reads_tree:
        for tenant in problem["tenants"]:
            tenant["parent"] = None

    ended = run(json.dumps(problem).encode(), "--policy", mechanism, "-o", "json")

    answer = answered_or_refused(ended)
    assert answer is not None, ended.err
    assert answer["divisible"]
    totals = dict.fromkeys((each["name"] for each in problem["demands"]), 0.0)
    for each in answer["tasks"]:
        assert each["tasks"] > 0
        totals[each["demand"]] += each["tasks"]
    out = {each["demand"]: each["count"] for each in answer["left_out"]}
    for demand in problem["demands"]:
        if demand.get("count") is not None:
            total = totals[demand["name"]] + out.get(demand["name"], 0.0)
            assert abs(total - demand["count"]) <= 1e-6
    assert all(0 <= part <= 1 + 1e-6 for part in answer["utilization"].values())
