"""What the register center tells of a time, as rows of a trace and hosts of an inventory."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pytest

from registry.admin import (
    HostTransition,
    PastHost,
    PastPeriod,
    PastQuota,
    PastRequest,
    PastStanding,
    PastTenant,
    PastVm,
)
from registry.requests import MembershipRule, Rules
from simulation import DecidedRounds, InputError, read_inventory, read_recording, record_period
from simulation.topology.hosts import HostEvent, HostEventKind
from simulation.traces.bad_rows import BadRows
from simulation.traces.native import NativeTrace
from tests.simulations import a_chunk, an_engine

SINCE = datetime(2026, 11, 10, tzinfo=UTC)
H1, H2 = UUID(int=1), UUID(int=2)
DECIDED = DecidedRounds(source="round 7", policy="fuga", slot_length_s=60, budget_units=None)


def at(seconds: float) -> datetime:
    return SINCE + timedelta(seconds=seconds)


def a_vm(
    host: UUID | None = None, placed: float | None = None, ended: float | None = None
) -> PastVm:
    return PastVm(
        host_id=host,
        placed_at=None if placed is None else at(placed),
        ended_at=None if ended is None else at(ended),
    )


def a_request(*vms: PastVm, asked: float = 10, **fields: Any) -> PastRequest:
    shown: dict[str, Any] = {
        "id": UUID(int=9),
        "tenant": "a",
        "demand": {"vcpus": 1},
        "min_count": 1,
        "requires": (),
        "hosts": None,
        "rules": Rules(),
    }
    return PastRequest(requested_at=at(asked), vms=vms, **(shown | fields))


def a_host(key: UUID, name: str, *changes: tuple[float, HostTransition], **fields: Any) -> PastHost:
    shown: dict[str, Any] = {
        "labels": ("ssd",),
        "capacity": {"vcpus": 4},
        "created_at": at(-1000),
        "was_open": True,
    }
    return PastHost(
        id=key,
        name=name,
        changes=tuple((at(when), change) for when, change in changes),
        **(shown | fields),
    )


def a_tenant(
    name: str, *standings: tuple[datetime, str | None, float], is_group: bool = False
) -> PastTenant:
    return PastTenant(
        name=name,
        is_group=is_group,
        standings=tuple(
            PastStanding(since=since, parent=parent, weight=weight)
            for since, parent, weight in standings or [(SINCE, None, 1.0)]
        ),
    )


def rows_of(folder: Path, *requests: PastRequest, **fields: Any) -> list[dict[str, str]]:
    """Record requests; return what the rows say, without what they leave open."""
    anonymous = fields.pop("anonymous", False)
    shown: dict[str, Any] = {
        "since": SINCE,
        "until": at(1000),
        "resources": ("vcpus",),
        "tenants": (a_tenant("b"), a_tenant("a", (SINCE, None, 2.0))),
        "quotas": (),
        "hosts": (a_host(H1, "h1"), a_host(H2, "h2")),
        "requests": iter(requests),
    }
    found = record_period(
        PastPeriod(**(shown | fields)), folder / "registry", DECIDED, anonymous=anonymous
    )
    with Path(found.trace).open(newline="") as file:
        return [
            {name: value for name, value in row.items() if value} for row in csv.DictReader(file)
        ]


COMMON = {"tenant": "a", "min_count": "1", "vcpus": "1"}


def test_vms_that_ran_already_stay_on_their_hosts(tmp_path: Path) -> None:
    request = a_request(
        a_vm(H1, -50, 200), a_vm(H1, -40, 230), a_vm(H1, -40, 261), a_vm(H2, -50), asked=-60
    )

    rows = rows_of(tmp_path, request)

    # Gone within a minute of each other: together. The third took longer.
    standing = {**COMMON, "arrival_s": "0.0"}
    assert rows == [
        {**standing, "lifetime_s": "230.0", "count": "2", "on_host": "h1"},
        {**standing, "lifetime_s": "261.0", "count": "1", "on_host": "h1"},
        {**standing, "count": "1", "on_host": "h2"},
    ]


def test_a_life_is_counted_from_its_first_place(tmp_path: Path) -> None:
    never_placed = a_request(a_vm(ended=70), asked=20)

    rows = rows_of(tmp_path, a_request(a_vm(placed=15, ended=100)), never_placed)

    assert [(row["arrival_s"], row["lifetime_s"]) for row in rows] == [
        ("10.0", "85.0"),
        ("20.0", "50.0"),
    ]
    assert [row.get("wait_at_most_s") for row in rows] == [None, "50.0"]


def test_vms_that_were_given_up_wait_apart_from_those_that_were_placed(tmp_path: Path) -> None:
    vms = (a_vm(placed=20, ended=100), a_vm(ended=100))

    single = rows_of(tmp_path / "single", a_request(*vms))
    gang = rows_of(tmp_path / "gang", a_request(*vms, min_count=2))
    waiting = rows_of(tmp_path / "waiting", a_request(vms[1], vms[1], asked=-50, min_count=2))

    shown = ("arrival_s", "lifetime_s", "count", "min_count", "wait_at_most_s")
    assert [[row.get(name) for name in shown] for row in (*single, *gang, *waiting)] == [
        ["10.0", "80.0", "1", "1", None],
        ["10.0", "90.0", "1", "1", "90.0"],
        ["10.0", "90.0", "2", "2", None],  # whole: as long as one of them was wanted
        ["0.0", "100.0", "2", "2", "100.0"],
    ]


def test_vms_that_got_their_places_in_several_slots_are_rows_in_that_order(tmp_path: Path) -> None:
    vms = (a_vm(placed=180, ended=400), a_vm(placed=60), a_vm(), a_vm(placed=120, ended=410))

    rows = rows_of(tmp_path, a_request(*vms, vms[0]))

    assert [(row["count"], row.get("lifetime_s")) for row in rows] == [
        ("1", None),
        ("1", "290.0"),
        ("2", "220.0"),
        ("1", None),
    ]


def test_a_gang_stays_whole(tmp_path: Path) -> None:
    vms = (a_vm(placed=20, ended=100), a_vm(placed=20, ended=500))

    (row,) = rows_of(tmp_path, a_request(*vms, min_count=2))

    assert row == {
        **COMMON,
        "arrival_s": "10.0",
        "lifetime_s": "480.0",
        "count": "2",
        "min_count": "2",
    }


def test_vms_of_a_host_that_is_not_told_arrive_at_the_beginning(tmp_path: Path) -> None:
    (row,) = rows_of(
        tmp_path, a_request(a_vm(UUID(int=77), -50), asked=-60, min_count=1, requires=("ssd",))
    )

    assert row == {**COMMON, "arrival_s": "0.0", "count": "1", "requires": "ssd"}


def test_names_become_numbers(tmp_path: Path) -> None:
    rules = Rules(anti_affinity=MembershipRule(group="secret", soft=True), zone="east")

    rows = rows_of(
        tmp_path,
        a_request(a_vm(H2, -5), asked=-9, tenant="b"),
        a_request(a_vm(), hosts=("h2",), rules=rules),
        anonymous=True,
    )

    text = "".join(path.read_text() for path in (tmp_path / "registry").iterdir())
    assert [row["tenant"] for row in rows] == ["tenant-1", "tenant-2"]
    assert rows[0]["on_host"] == rows[1]["hosts"] == "host-2"
    assert rows[1]["anti_affinity"] == "vm-group-1:soft"
    assert rows[1]["zone"] == "east"
    assert not [
        name for name in ("secret", "h1", "h2") if f'"{name}"' in text or f",{name}," in text
    ]
    assert (tmp_path / "registry/tree.csv").read_text().split() == [
        "name,parent,weight,at_s",
        "tenant-1,,1.0,0.0",
        "tenant-2,,2.0,0.0",
    ]


TENANTS = (
    a_tenant("staff", is_group=True),
    a_tenant("left", (SINCE, "staff", 3.0), is_group=True),
    a_tenant("idle", (SINCE, "left", 1.0)),
    a_tenant("b", (SINCE, "left", 1.0), (at(60), None, 2.0)),
    a_tenant("a", (at(30), "left", 1.0)),
    a_tenant("nobody", is_group=True),
)
QUOTAS = (
    PastQuota(owner="staff", resource="vms", limits=((SINCE, 9), (at(60), None))),
    PastQuota(owner="a", resource="vcpus", limits=((SINCE, None), (at(90), 4))),
    PastQuota(owner="nobody", resource="vms", limits=((SINCE, 1),)),
)


@pytest.mark.parametrize("anonymous", [False, True])
def test_groups_and_quotas_are_told_from_when_on(tmp_path: Path, anonymous: bool) -> None:
    requests = (a_request(a_vm(), tenant="b", asked=5), a_request(a_vm(), asked=40))

    rows_of(tmp_path, *requests, tenants=TENANTS, quotas=QUOTAS, anonymous=anonymous)

    found = read_recording(tmp_path / "registry")
    names = {"staff": "group-1", "left": "group-2", "b": "tenant-1", "a": "tenant-2"}

    def lines(path: str | None) -> list[str]:
        shown = Path(path or "").read_text().split()
        for name, number in names.items() if anonymous else ():
            shown = [line.replace(number, name) for line in shown]
        return shown

    assert (found.groups, found.quotas) == (2, 2)
    # Tenants who asked for nothing, and groups without others, are not in it.
    assert lines(found.tree) == [
        "name,parent,weight,at_s",
        "staff,,1.0,0.0",
        "left,staff,3.0,0.0",
        "b,left,1.0,0.0",
        "b,,2.0,60.0",
        "a,left,1.0,0.0",
    ]
    assert lines(found.quota_file) == [
        "owner,resource,limit,at_s",
        "staff,vms,9,0.0",
        "staff,vms,,60.0",
        "a,vcpus,4,90.0",
    ]


def test_anonymous_hosts_keep_the_order_of_their_names(tmp_path: Path) -> None:
    hosts = tuple(a_host(UUID(int=n), f"h{n}") for n in range(10, 22))

    rows_of(tmp_path, a_request(a_vm()), hosts=hosts, anonymous=True)

    shown = [host.name for host in read_inventory(str(tmp_path / "registry/hosts.json")).hosts]
    assert (shown[0], shown[1], shown[-1]) == ("host-01", "host-02", "host-12")


def test_the_command_that_replays_it_is_told(tmp_path: Path) -> None:
    decided = replace(
        DECIDED,
        parameters={"alpha": 2.5},
        fairness_memory_s=7200,
        zone_policies={zone: {"policy": "slots", "parameters": {}} for zone in ("east", "nowhere")},
    )
    past = PastPeriod(
        since=SINCE,
        until=at(90.5),
        resources=("vcpus",),
        tenants=TENANTS,
        quotas=QUOTAS,
        hosts=(a_host(H1, "h1", labels=("zone=east",)),),
        requests=iter([a_request(a_vm(), tenant="b")]),
    )

    words = record_period(past, tmp_path / "saved", decided).command().split()

    zones = json.loads((tmp_path / "saved/zones.json").read_text())
    assert list(zones) == ["east"]  # no host is in the other one

    shown = dict(zip(words[3::2], words[4::2], strict=True))
    saved = f"{tmp_path}/saved"
    assert words[:3] == ["fuga", "simulate", f"{saved}/trace.csv"]
    assert shown == {
        "--hosts": f"{saved}/hosts.json",
        "--tree": f"{saved}/tree.csv",
        "--quotas": f"{saved}/quotas.csv",
        "--zone-policy": f"{saved}/zones.json",
        "--policy": "fuga",
        "--slot": "60",
        "-p": "alpha=2.5",
        "--budget": "0",
        "--fairness-memory": "7200",
        "--began-at": "2026-11-10T00:00:00+00:00",
        "--until": "90.500",
    }


def test_hosts_join_close_open_fail_and_leave(tmp_path: Path) -> None:
    hosts = (
        a_host(H1, "h1", (5, HostTransition.OPENED), (9, HostTransition.FENCED), was_open=False),
        a_host(H2, "h2", (7, HostTransition.RETIRED)),
        a_host(UUID(int=3), "h2", (40, HostTransition.OPENED), created_at=at(30), was_open=False),
    )

    rows_of(tmp_path, a_request(a_vm()), hosts=hosts)

    inventory = read_inventory(read_recording(tmp_path / "registry").hosts)
    assert [host.name for host in inventory.hosts] == ["h1", "h2", "h2~2"]
    assert [(each.at_s, each.host, each.what) for each in inventory.events] == [
        (0, "h1", HostEventKind.DRAIN),
        (5, "h1", HostEventKind.RETURN),
        (7, "h2~2", HostEventKind.LEAVE),
        (9, "h1", HostEventKind.FAIL),
        (30, "h2", HostEventKind.JOIN),
        (30, "h2", HostEventKind.DRAIN),
        (40, "h2", HostEventKind.RETURN),
    ]


def test_a_recording_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    rows_of(tmp_path, a_request(a_vm()))
    found = read_recording(tmp_path / "registry")
    window = tmp_path / "registry/window.json"
    text = window.read_text()

    window.write_text(text.replace("vms_requested", "vms_asked").replace('"source"', '"told_by"'))

    assert "vms_asked" in window.read_text()
    assert read_recording(tmp_path / "registry") == found


def test_where_nothing_was_recorded_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"window\.json: No such file"):
        read_recording(tmp_path)


# ---- what runs already, in traces and in the engine --------------------------


def trace_of(*rows: dict[str, Any]) -> tuple[NativeTrace, BadRows]:
    faults = BadRows("t.csv")
    source = lambda: ((line, row, 1.0) for line, row in enumerate(rows, 2))  # noqa: E731
    return NativeTrace(source=source, resources=("vcpus",), faults=faults), faults


def test_what_waits_longer_than_its_row_says_is_given_up() -> None:
    trace, faults = trace_of(
        {"arrival_s": 0, "vcpus": 9, "count": 2, "wait_at_most_s": 90},
        {"arrival_s": 0, "vcpus": 9, "wait_at_most_s": ""},
        {"arrival_s": 0, "vcpus": 9, "wait_at_most_s": "soon"},
    )
    (chunk,) = trace.chunks()
    engine = an_engine(capacity=[(1, 1024)])
    requested = replace(chunk, demand=np.full((len(chunk), 2), 9))

    given_up = [
        int(engine.advance_to(slot, [requested] if slot == 0 else []).given_up.count.sum())
        for slot in range(4)
    ]

    assert given_up == [0, 0, 2, 0]
    assert engine.waiting.count.tolist() == [1]
    assert faults.lines() == ["t.csv:4: wait_at_most_s: found 'soon', expected a number"]


def test_only_at_the_beginning_vms_run_already() -> None:
    trace, faults = trace_of(
        {"arrival_s": 0, "vcpus": 1, "on_host": "h1"},
        {"arrival_s": 5, "vcpus": 1, "on_host": "h1"},
        {"arrival_s": 6, "vcpus": 1, "on_host": ""},
    )

    (chunk,) = trace.chunks()

    assert chunk.on_host == ("h1", None)
    assert faults.lines() == ["t.csv:3: on_host: found 'h1', allowed only where arrival_s is 0"]


def test_what_runs_already_takes_room_and_leaves() -> None:
    engine = an_engine(capacity=[(4, 4096)])
    chunk = a_chunk(
        {"count": 6, "lifetime_s": 90, "on_host": "h0"}, {"count": 1}, {"on_host": "elsewhere"}
    )

    first = engine.advance_to(0, [chunk])
    second = engine.advance_to(1, [])
    third = engine.advance_to(2, [])

    assert first.stood is not None
    assert first.stood.count.tolist() == [6]  # more than there is room for: they ran there
    assert engine.cluster.committed.tolist() == [[2, 2048]]
    assert [int(each.count.sum()) for each in first.arrived] == [2]
    assert first.round is not None
    assert not len(first.round.placed)
    assert [vms.count.tolist() for vms in second.ended] == []
    assert [vms.count.tolist() for vms in third.ended] == [[6]]
    assert third.round is not None
    assert third.round.placed.count.sum() == 2


def test_what_ran_already_and_is_lost_waits_for_another_host() -> None:
    engine = an_engine(events=[HostEvent(at_s=60, host="h0", what=HostEventKind.FAIL)])

    engine.advance_to(0, [a_chunk({"count": 2, "on_host": "h0", "lifetime_s": 300})])
    passed = engine.advance_to(1, [])

    assert passed.round is not None
    assert np.flatnonzero(engine.cluster.committed[:, 0]).tolist() == [1]
    assert passed.round.placed.end_s.tolist() == [300.0]
    assert passed.round.placed.request.tolist() == [-1]
