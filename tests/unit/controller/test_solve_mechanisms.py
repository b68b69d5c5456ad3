"""`fuga solve` with mechanisms, and with trees of tenants."""

from __future__ import annotations

import contextlib
import io
import json
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from controller.cli.problems import solve
from placement.mechanisms import MECHANISMS

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"
TREES = [name for name, entry in MECHANISMS.items() if entry.reads_tree]


def run(problem: dict[str, Any], *arguments: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    stdin = io.TextIOWrapper(io.BytesIO(json.dumps(problem).encode()))
    with (
        mock.patch.object(sys, "argv", ["fuga solve", "-", *arguments]),
        mock.patch.object(sys, "stdin", stdin),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        pytest.raises(SystemExit) as ended,
    ):
        solve.main()
    return int(ended.value.code or 0), out.getvalue(), err.getvalue()


def answer(problem: dict[str, Any], name: str) -> dict[str, Any]:
    status, out, err = run(problem, "--policy", name, "-o", "json", "--details")
    assert (status, err) == (0, "")
    value: dict[str, Any] = json.loads(out, parse_constant=pytest.fail)
    return value


def refusal(problem: dict[str, Any], name: str) -> str:
    status, out, err = run(problem, "--policy", name)
    assert (status, out) == (2, "")
    assert "Traceback" not in err
    return err


def the_tree() -> dict[str, Any]:
    problem: dict[str, Any] = json.loads((EXAMPLES / "tenant_tree.json").read_text())
    return problem


def problem(**parts: Any) -> dict[str, Any]:
    return {
        "resources": ["vcpus", "memory_gib"],
        "hosts": [
            {"name": "s1", "capacity": [4, 8]},
            {"name": "s2", "capacity": [2, 4], "count": 2},
        ],
        "tenants": [{"name": "u1"}, {"name": "u2", "weight": 2}],
        "demands": [
            {"name": "j2", "tenant": "u2", "per_vm": [1, 1]},
            {"name": "j1", "tenant": "u1", "per_vm": [1, 3], "count": 2},
        ],
        **parts,
    }


def tasks_of(value: dict[str, Any]) -> dict[str, float]:
    return {each["name"]: each["tasks"] for each in value["tenants"]}


# ----------------------------------------------------------------- mechanisms


@pytest.mark.parametrize("name", sorted(MECHANISMS))
def test_an_answer_has_the_keys_of_the_contract(name: str) -> None:
    given = problem()
    if name == "per_server_drf":
        del given["demands"][1]["count"]

    value = answer(given, name)

    assert list(value) == [
        "policy",
        "divisible",
        "tasks",
        "tenants",
        "utilization",
        "left_out",
        "seconds",
        "details",
    ]
    assert (value["policy"], value["divisible"]) == (name, True)
    assert {each["host"] for each in value["tasks"]} <= {None, "s1", "s2"}
    for tenant, demand in (("u1", "j1"), ("u2", "j2")):
        given_to = sum(each["tasks"] for each in value["tasks"] if each["demand"] == demand)
        assert tasks_of(value)[tenant] == pytest.approx(given_to)


@pytest.mark.parametrize("name", ["drf", *TREES])
def test_pooled_mechanisms_name_no_host(name: str) -> None:
    assert {each["host"] for each in answer(problem(), name)["tasks"]} == {None}


def test_a_class_of_hosts_offers_its_count_and_reports_one_total() -> None:
    alone = problem(
        tenants=[{"name": "u1"}], demands=[{"name": "j", "tenant": "u1", "per_vm": [1, 2]}]
    )

    value = answer(alone, "drfh")

    assert {each["host"]: each["tasks"] for each in value["tasks"]} == pytest.approx(
        {"s1": 4, "s2": 4}
    )
    assert value["utilization"] == pytest.approx({"vcpus": 1, "memory_gib": 1})


def test_what_is_missing_of_a_finite_count_is_left_out_with_its_reason() -> None:
    tenants = [{"name": each} for each in ("full", "lost", "idle", "huge")]
    demands = [
        {"name": "a", "tenant": "full", "per_vm": [1, 1], "count": 100},
        {"name": "b", "tenant": "lost", "per_vm": [1, 1], "count": 3, "requires": ["gpu"]},
        {"name": "c", "tenant": "idle", "per_vm": [0, 0], "count": 3},
        {"name": "d", "tenant": "huge", "per_vm": [1, 1], "count": 2, "hosts": ["none"]},
    ]
    hosts = [{"name": "s1", "capacity": [4, 8]}, {"name": "none", "capacity": [0, 8]}]

    value = answer(problem(tenants=tenants, demands=demands, hosts=hosts), "drfh")

    assert value["left_out"] == [
        {"demand": "a", "count": pytest.approx(96), "reason": "no_room"},
        {"demand": "b", "count": 3, "reason": "no_eligible_host"},
        {"demand": "c", "count": 3, "reason": "nothing_asked"},
        {"demand": "d", "count": 2, "reason": "no_host_large_enough"},
    ]


def test_whole_tasks_go_to_the_demand_that_stands_first_where_shares_are_equal() -> None:
    tenants = [{"name": "u1"}, {"name": "u2"}]
    demands = [{"name": f"of-{u}", "tenant": u, "per_vm": [1, 0]} for u in ("u2", "u1")]
    hosts = [{"name": "s", "capacity": [3, 1]}]

    value = answer(problem(tenants=tenants, demands=demands, hosts=hosts), "hdrf")

    assert tasks_of(value) == {"u1": 1, "u2": 2}


def test_details_are_by_name() -> None:
    details = answer(problem(), "mch_staged")["details"]

    assert set(details["weights"]) == {"u1", "u2"}
    assert (
        details["dominant_shares"].keys() == details["levels"].keys() == details["weights"].keys()
    )
    assert details["stages"][0]["stopped"] in (["u1"], ["u2"], ["u2", "u1"])


@pytest.mark.parametrize(
    ("name", "parts", "message"),
    [
        (
            "drf",
            {
                "demands": [
                    {"name": "a", "tenant": "u1", "per_vm": [1, 1]},
                    {"name": "b", "tenant": "u1", "per_vm": [1, 1]},
                ]
            },
            "demands[1].tenant: mechanisms take one demand per tenant, and demands[0]",
        ),
        (
            "drf",
            {"tenants": [{"name": "g"}, {"name": "u1", "parent": "g"}, {"name": "u2"}]},
            "tenants[1].parent: drf divides without a tree of tenants",
        ),
        (
            "hdrf",
            {"demands": [{"name": "a", "tenant": "u1", "per_vm": [1, 1], "speed": {"s2": 2}}]},
            "demands[0].speed.s2: hdrf: ",
        ),
        (
            "per_server_drf",
            {"demands": [{"name": "a", "tenant": "u1", "per_vm": [1, 1], "count": 3}]},
            "demands[0].count: per_server_drf: ",
        ),
        (
            "hdrf",
            {"demands": [{"name": "a", "tenant": "u1", "per_vm": [0.000001, 0]}]},
            "demands: hdrf: it hands out whole tasks one by one",
        ),
        (
            "mch",
            {"demands": [{"name": "a", "tenant": "u1", "per_vm": [1, 1], "min_count": 2}]},
            "demands[0].min_count: gangs are for policies",
        ),
        (
            "collapsed",
            {"parameters": {"resource": "gpu"}},
            'parameters.resource: no resource has the name "gpu"',
        ),
        ("collapsed", {"parameters": {"resource": 3}}, "parameters.resource: must be"),
        ("drf", {"parameters": {"resource": 3}}, "parameters.resource: must be"),
        ("drf", {"parameters": {"alpha": 1}}, "parameters.alpha: must be"),
        ("drf", {"parameters": {"alfa": 2}}, 'did you mean "alpha"'),
    ],
)
def test_what_a_mechanism_cannot_take_is_refused_with_its_place(
    name: str, parts: dict[str, Any], message: str
) -> None:
    assert message in refusal(problem(**parts), name)


@pytest.mark.parametrize("name", sorted(MECHANISMS))
def test_the_table_reads_well_for_mechanisms(name: str) -> None:
    given = problem()
    del given["demands"][1]["count"]

    status, out, err = run(given, "--policy", name, "--details")

    assert (status, err) == (0, "")
    assert " given, 0 left out, " in out
    for heading in ("Tenants", "Placements", "Utilization", "Details"):
        assert heading in out


# -------------------------------------------------------------- tenant trees


@pytest.mark.parametrize("name", ["mch", "mch_staged"])
def test_the_example_of_a_tree_has_the_shares_of_its_paper(name: str) -> None:
    value = answer(the_tree(), name)

    shares = {each["name"]: each["dominant_share"] for each in value["tenants"]}
    assert [shares[leaf] for leaf in value["details"]["weights"]] == pytest.approx(
        [1 / 3, 1 / 2, 1 / 6, 1 / 6, 1 / 2, 1 / 3]
    )
    assert list(value["details"]["weights"].values()) == [1, 1, 0.5, 0.5, 1, 1]


def test_a_group_has_what_all_below_it_have() -> None:
    value = answer(the_tree(), "mch_staged")

    tenants = {each["name"]: each for each in value["tenants"]}
    assert tenants["n2"]["tasks"] == pytest.approx(100 + 200 / 3)
    assert tenants["n2"]["dominant_share"] == pytest.approx(0.5)


@pytest.mark.parametrize("policy", ["fuga", "best_fit_drfh", "best_fit_hdrf", "first_fit_drfh"])
def test_policies_place_whole_vms_as_the_tree_says(policy: str) -> None:
    placed = tasks_of(answer(the_tree(), policy))

    assert [placed[leaf] for leaf in ("n1.cpu", "n2.cpu1", "n2.cpu2", "n3.cpu")] == pytest.approx(
        [66.7, 33.3, 33.3, 66.7], abs=1.1
    )
    assert placed["n1.memory"] == placed["n2.memory"] == 100
    assert placed["n1"] == placed["n1.cpu"] + placed["n1.memory"]


@pytest.mark.parametrize("policy", ["best_fit_drfh", "best_fit_hdrf"])
def test_what_a_sibling_holds_counts_against_its_group(policy: str) -> None:
    """a1 holds 40 of 100 cores and asks for nothing; the groups a and b share all alike."""
    tenants = [
        {"name": "a"},
        {"name": "b"},
        {"name": "a1", "parent": "a", "held": [40, 0]},
        {"name": "a2", "parent": "a"},
        {"name": "b1", "parent": "b"},
    ]
    demands = [{"name": f"of-{t}", "tenant": t, "per_vm": [1, 1]} for t in ("a2", "b1")]
    hosts = [{"name": "s", "capacity": [100, 1000], "free": [60, 1000]}]

    placed = tasks_of(answer(problem(tenants=tenants, demands=demands, hosts=hosts), policy))

    assert placed["a2"] == pytest.approx(20, abs=1)
    assert placed["b1"] == pytest.approx(40, abs=1)


@pytest.mark.parametrize("name", ["mch_staged", "best_fit_drfh"])
@pytest.mark.parametrize(
    ("tenants", "demand_of", "message"),
    [
        (
            [{"name": "a", "parent": "b"}, {"name": "b", "parent": "a"}],
            "a",
            "tenants[0].parent: the tenants' tree has a cycle",
        ),
        ([{"name": "a", "parent": "a"}], "a", "tenants[0].parent: the tenants' tree has a cycle"),
        ([{"name": "a", "parent": "x"}], "a", "tenants[0].parent: no tenant has the name"),
        ([{"name": "a", "parent": 3}], "a", "tenants[0].parent: must be a name"),
        ([{"name": "a"}, {"name": "b", "parent": "a"}], "a", "demands[0].tenant: "),
        ([{"name": "a", "held": [1, 0]}, {"name": "b", "parent": "a"}], "b", "tenants[0].held: "),
        (
            [{"name": "a", "weight": 0}, {"name": "b", "parent": "a"}],
            "b",
            "tenants[0].weight: must be > 0",
        ),
        (
            [{"name": "t0"}, *({"name": f"t{n}", "parent": f"t{n - 1}"} for n in range(1, 150))],
            "t149",
            "the tenants' tree must have at most 100 levels",
        ),
    ],
    ids=["cycle", "own parent", "unknown", "no name", "group asks", "holds", "weight", "deep"],
)
def test_a_malformed_tree_is_refused_with_its_place(
    name: str, tenants: list[dict[str, Any]], demand_of: str, message: str
) -> None:
    demands = [{"name": "j", "tenant": demand_of, "per_vm": [1, 1]}]

    assert message in refusal(problem(tenants=tenants, demands=demands), name)


def test_the_deepest_tree_that_is_allowed_is_solved_whatever_its_weights() -> None:
    tenants = [
        {"name": "t0"},
        *({"name": f"t{n}", "parent": f"t{n - 1}", "weight": 1e-9} for n in range(1, 99)),
        {"name": "u", "parent": "t98", "weight": 1e9},
        {"name": "v", "parent": "t98", "weight": 1e9},
        {"name": "w"},
    ]
    demands = [{"name": f"of-{t}", "tenant": t, "per_vm": [1, 1]} for t in ("u", "v", "w")]
    hosts = [{"name": "s", "capacity": [8, 8]}]
    deep = problem(tenants=tenants, demands=demands, hosts=hosts)

    for name in ("mch", "mch_staged", "hdrf", "best_fit_drfh", "best_fit_hdrf"):
        placed = tasks_of(answer(deep, name))
        assert [placed[t] for t in ("u", "v", "w")] == pytest.approx([2, 2, 4]), name
    answer(deep, "collapsed")
