"""Groups of tenants, quotas and policies of zones: files, and what a simulation makes of them."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from simulation import RunSpec, TraceSpec, simulate
from simulation.errors import InputError
from simulation.experiments.specs import open_inputs
from simulation.experiments.study_plan import ZoneChoice, plan_study, read_zone_policies
from simulation.topology.hierarchy import Hierarchy, SimulatedQuota, read_hierarchy
from simulation.topology.hosts import HostEvent, HostEventKind, SimHost
from tests.simulations import a_chunk, an_engine

TREE = """name,parent,weight
staff,,2
left,staff,
ann,left,0.5
bob,left,
cid,,3
"""


def write(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


def test_who_is_the_parent_of_others_is_a_group(tmp_path: Path) -> None:
    quotas = write(tmp_path, "quotas.csv", "owner,resource,limit\nstaff,vms,10\nann,vcpus,4\n")

    ((at_s, found),) = read_hierarchy(write(tmp_path, "tree.csv", TREE), quotas)

    assert at_s == 0
    assert found.groups == ("staff", "left")
    assert list(found.groups_above("bob")) == ["left", "staff"]
    assert list(found.groups_above("cid")) == []
    assert found.weights["ann"] == 0.5
    assert found.quotas[0] == SimulatedQuota(owner="staff", resource="vms", limit=10)


@pytest.mark.parametrize(
    ("tree", "told"),
    [
        ("name,parent\na,b\n", "2: parent: no row is named 'b'"),
        ("name,parent\na,\na,\n", "3: name: 'a' stands twice"),
        ("name,parent\na,b\nb,c\nc,b\n", "is in a circle"),
        ("name,parent,weight\na,,0\n", "2: weight: found '0'"),
        ("name,parent,at_s\na,,x\n", "2: at_s: found 'x'"),
        ("name,parent,at_s\na,,9\na,,5\n", "3: at_s: 'a' has a later row above"),
        ("name,parent,at_s\na,b,\nb,,\nb,a,9\n", "from 9 s on: '.' is in a circle"),
        ("tenant,parent\na,\n", "expected a column name"),
    ],
)
def test_a_bad_tree_is_refused_with_its_line(tmp_path: Path, tree: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        read_hierarchy(write(tmp_path, "tree.csv", tree), None)


@pytest.mark.parametrize(
    ("quotas", "told"),
    [
        ("owner,resource,limit\na,vms,-1\n", "2: limit: found '-1'"),
        ("owner,resource,limit\na,vms,1\na,vms,2\n", "3: a quota of 'a' on vms"),
        ("owner,limit\na,1\n", "expected a column resource"),
        ("owner,resource,limit\na,vms,\n", "2: limit: found ''"),
        ("owner,resource,limit,at_s\na,vms,1,9\na,vms,2,5\n", "3: at_s: 'a' has a later quota"),
    ],
)
def test_bad_quotas_are_refused_with_their_line(tmp_path: Path, quotas: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        read_hierarchy(None, write(tmp_path, "quotas.csv", quotas))


def a_spec(folder: Path, rows: str, **more: object) -> RunSpec:
    trace = write(
        folder, "trace.csv", f"arrival_s,lifetime_s,tenant,vcpus,memory_mib,count\n{rows}"
    )
    shown = {
        "name": "x",
        "trace": TraceSpec(path=trace),
        "hosts": "2:8c:16g",
        "policy": "first_fit",
    }
    return RunSpec(**(shown | more))  # type: ignore[arg-type]


def test_what_is_beyond_a_quota_is_left_out_and_says_so(tmp_path: Path) -> None:
    quotas = write(tmp_path, "quotas.csv", "owner,resource,limit\nleft,vcpus,3\n")
    tree = write(tmp_path, "tree.csv", TREE)
    rows = "0,600,ann,1,1024,2\n0,600,bob,1,1024,2\n0,600,cid,1,1024,4\n"

    found = simulate(a_spec(tmp_path, rows, tree=tree, quotas=quotas), tmp_path / "out")

    assert found["vms"]["placed"] == 7
    assert found["left_out"] == {"quota": 1}


CHANGES = """name,parent,weight,at_s
left,,,
ann,left,,
ann,,4,100
bob,left,2,
"""


def test_groups_weights_and_quotas_hold_from_their_time_on(tmp_path: Path) -> None:
    quotas = write(
        tmp_path,
        "quotas.csv",
        "owner,resource,limit,at_s\nleft,vms,3,\nleft,vms,,200\nbob,vms,9,100\n",
    )

    found = read_hierarchy(write(tmp_path, "tree.csv", CHANGES), quotas)

    assert [at_s for at_s, _ in found] == [0, 100, 200]
    assert [sorted(each.parents) for _, each in found] == [["ann", "bob"], ["bob"], ["bob"]]
    assert [each.weights["ann"] for _, each in found] == [1, 4, 4]
    assert [[(q.owner, q.limit) for q in each.quotas] for _, each in found] == [
        [("left", 3)],
        [("left", 3), ("bob", 9)],
        [("bob", 9)],
    ]


def test_a_quota_that_is_lifted_lets_waiting_vms_in(tmp_path: Path) -> None:
    quotas = write(
        tmp_path, "quotas.csv", "owner,resource,limit,at_s\nann,vcpus,1,\nann,vcpus,3,90\n"
    )
    spec = a_spec(tmp_path, "0,600,ann,1,1024,4\n", quotas=quotas, slot_length_s=60, drain=True)

    found = simulate(spec, tmp_path / "out")

    placements = pq.read_table(tmp_path / "out/placements.parquet").to_pylist()
    # The first at 0 s, two more in the first slot after the change, the last when one has gone.
    assert [(row["start_s"], row["count"]) for row in placements] == [(0, 1), (120, 2), (600, 1)]
    assert found["vms"]["waiting"] == 0


def test_tenants_go_in_the_order_of_the_tree() -> None:
    tree = Hierarchy(order={"cid": 0, "ann": 1})
    engine = an_engine(hierarchy=tree, policy="best_fit_drfh")
    requested = [{"tenant": name, "count": 9} for name in ("bob", "ann", "cid")]

    passed = engine.advance_to(0, [a_chunk(*requested)])

    assert passed.round is not None
    names = [engine.names.tenants.values[number] for number in passed.round.tenants.tolist()]
    assert names == ["cid", "ann", "bob"]  # who is not in it comes last
    assert passed.round.snapshot.tenant.tolist() == [2, 1, 0]


def test_quotas_on_what_nobody_has_are_refused(tmp_path: Path) -> None:
    quotas = write(tmp_path, "quotas.csv", "owner,resource,limit\nann,gpu,3\n")

    with pytest.raises(InputError, match="resource 'gpu' of 'ann': one of vms, vcpus, memory_mib"):
        open_inputs(a_spec(tmp_path, "0,600,ann,1,1024,2\n", quotas=quotas))


def test_a_group_that_asks_is_refused(tmp_path: Path) -> None:
    spec = a_spec(tmp_path, "0,600,left,1,1024,2\n", tree=write(tmp_path, "tree.csv", TREE))

    with pytest.raises(InputError, match="'left': requests VMs, but is the parent of others"):
        simulate(spec, tmp_path / "out")


def test_each_zone_decides_by_its_own_policy_and_anew_when_hosts_come() -> None:
    hosts = [
        SimHost(name="h0", labels=("zone=a",)),
        SimHost(name="h1", labels=("zone=a",)),
        SimHost(name="h2", labels=("zone=b",)),
    ]
    zones = {"a": "slots", "b": "best_fit_drfh"}
    engine = an_engine(
        hosts,
        capacity=[(4, 4096)] * 3,
        zone_policies=zones,
        absent=frozenset({"h1"}),
        events=[HostEvent(at_s=60.0, host="h1", what=HostEventKind.JOIN)],
    )

    first = engine.advance_to(0, [a_chunk({"count": 12})])
    second = engine.advance_to(1, [])

    assert first.round is not None
    assert second.round is not None
    assert set(first.round.allocation.details["zones"]) == {"a", "b"}
    assert sorted(first.round.placed.host.tolist()) == [0, 2]
    assert second.round.placed.host.tolist() == [1]


def test_policies_of_zones_are_read_as_settings_have_them(tmp_path: Path) -> None:
    its = '{"a": {"policy": "fuga", "parameters": {"eta": 3}}, "b": {"policy": "slots"}}'
    path = write(tmp_path, "zones.json", its)

    assert read_zone_policies([path, "c=slots"]) == {
        "a": ZoneChoice("fuga", {"eta": 3}),
        "b": ZoneChoice("slots", {}),
        "c": ZoneChoice("slots"),
    }
    for text in ("[]", "{", '{"a": "fuga"}'):
        with pytest.raises(InputError, match=r'expected \{"ZONE"'):
            read_zone_policies([write(tmp_path, "bad.json", text)])
    with pytest.raises(InputError, match="expected ZONE=POLICY, or a JSON file"):
        read_zone_policies(["nowhere"])


def test_policies_of_zones_are_checked_before_anything_runs(tmp_path: Path) -> None:
    assert read_zone_policies(["a=fuga"]) == {"a": ZoneChoice("fuga")}
    with pytest.raises(InputError, match="a zone is named twice"):
        read_zone_policies(["a=fuga", "a=slots"])
    unknown = a_spec(tmp_path, "0,600,ann,1,1024,2\n", zone_policies={"a": "nothing"})
    with pytest.raises(InputError, match="--zone-policy a=nothing"):
        plan_study(unknown, policies=["fuga"], seeds=1)
    nowhere = a_spec(tmp_path, "0,600,ann,1,1024,2\n", zone_policies={"a": "fuga"})
    with pytest.raises(InputError, match="no host is labelled zone=a"):
        open_inputs(nowhere)
