"""Rounds of a register center, recorded and simulated: the same VMs on the same hosts."""

from __future__ import annotations

import csv
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from controller.cli.simulations.recording import deciding_settings
from controller.rounds.inputs import decode_inputs
from controller.rounds.interfaces import PolicyChoice, Slot
from controller.rounds.policy_process import PolicyProcess
from controller.rounds.round import run_round
from controller.settings import ControllerSettings
from placement.catalog.zone_policies import NamedPolicy
from registry import HostAdminEvent, Registry
from registry.requests import Request
from registry.tenancy import MoveTo
from simulation import RunSpec, TraceSpec, record_period, simulate
from tests.raw_sql import RawSql
from tests.register import (
    ACTOR,
    add_group,
    add_host,
    add_request,
    add_tenant,
    add_vm_type,
    remove_vm,
    run_vm,
    take_lease,
)

LENGTH_S = 60.0
CHOICE = PolicyChoice(
    name="fuga",
    parameters={"eta": 4, "alpha": 3.0},
    budget_units=100_000,
    decision_time_s=600,
    zones={"east": NamedPolicy(policy="best_fit", parameters={})},
)
#: What a register center says with the time at which it happened.
TIMES = (
    ("vms", "created_at"),
    ("vms", "deleted_at"),
    ("requests", "created_at"),
    ("assignments", "created_at"),
    ("assignments", "released_at"),
    ("events", "at"),
)


@dataclass(kw_only=True)
class Life:
    """A register center that lives slot by slot, however fast the test is."""

    register: Registry
    decider: PolicyProcess
    raw: RawSql
    first: datetime  #: start of slot 0
    slot: int = 0
    assignments: dict[Any, list[Any]] = field(default_factory=dict)  #: by request

    def pass_slot(self) -> None:
        """Let all that was done since the last slot be done in its middle, and decide."""
        self._move(self.first + timedelta(seconds=(self.slot - 0.5) * LENGTH_S))
        start = self.first + timedelta(seconds=self.slot * LENGTH_S)
        report = run_round(
            Slot(start_at=start, length_s=LENGTH_S),
            take_lease(self.register),
            CHOICE,
            store=self.register.rounds,
            decider=self.decider,
        )
        for request, keys in report.assignments.items() if report is not None else ():
            self.assignments.setdefault(request, []).extend(keys)
            for key in keys:
                run_vm(self.register, key)
        self._move(start + timedelta(seconds=1))
        self.slot += 1

    def delete(self, request: Request) -> None:
        self.register.requests.delete(request.id, actor=ACTOR)
        for key in self.assignments[request.id]:
            remove_vm(self.register, key)

    def _move(self, at: datetime) -> None:
        """Let what happened since the last move have happened at another time, in this order."""
        for table, column in TIMES:
            moments = self.raw.rows(
                f"SELECT DISTINCT {column} AS at FROM {table} WHERE {column} > ? ORDER BY {column}",
                self._told(self.first + timedelta(days=500)),
            )
            for number, moment in enumerate(moments):
                self.raw.run(
                    f"UPDATE {table} SET {column} = ? WHERE {column} = ?",
                    self._told(at + timedelta(milliseconds=number)),
                    moment["at"],
                )

    def _told(self, at: datetime) -> Any:
        return f"{at:%Y-%m-%d %H:%M:%S.%f}" if self.raw.dialect == "sqlite" else at


def test_a_recording_is_decided_as_the_rounds_were(
    register: Registry, raw: RawSql, decider: PolicyProcess, tmp_path: Path
) -> None:
    now = register.now()
    first = datetime.fromtimestamp(now.timestamp() // LENGTH_S * LENGTH_S, UTC)
    life = Life(register=register, decider=decider, raw=raw, first=first - timedelta(days=1000))
    for number in range(1, 6):
        labels = ("zone=east",) if number < 3 else ()
        add_host(register, f"h{number}", vcpus=5, memory_mib=20_480, labels=labels)
    raw.run(f"UPDATE hosts SET created_at = {raw.before('created_at', '2000 days')}")
    add_vm_type(register)
    add_vm_type(register, "wide", vcpus=2, memory_mib=2048)
    add_group(register, "labs", weight=2.0)
    add_group(register, "staff")
    # Neither in order of their names, nor of their first requests; one never asks.
    for name, parent in (("idle", None), ("c", "labs"), ("b", "staff"), ("a", "staff")):
        add_tenant(register, name, parent=parent)
    register.quotas.set("staff", {"vcpus": 5}, over_quota="wait", actor=ACTOR)
    register.quotas.set("a", {"vms": 3}, actor=ACTOR)

    add_request(register, 3, name="stands", tenant="c")
    life.pass_slot()
    leaves = add_request(register, 4, name="leaves", tenant="a")
    add_request(register, 4, name="b1", tenant="b", vm_type="wide")
    add_request(register, 6, name="c1", tenant="c")
    life.pass_slot()
    register.quotas.set("staff", {"vcpus": 9}, actor=ACTOR)
    add_request(register, 2, name="c2", tenant="c", vm_type="wide")
    life.pass_slot()
    life.delete(leaves)
    register.tenants.update("b", move=MoveTo(parent="labs"), actor=ACTOR)
    register.tenants.update("a", weight=3.0, actor=ACTOR)
    add_request(register, 3, name="a2", tenant="a", vm_type="wide")
    life.pass_slot()
    register.hosts.change_admin("h5", HostAdminEvent.DRAIN, actor=ACTOR)
    register.quotas.set("a", {"vms": None}, actor=ACTOR)
    register.quotas.set("staff", {"vcpus": None}, actor=ACTOR)
    add_request(register, 2, name="gang", tenant="c", min_count=2)
    life.pass_slot()
    end = life.first + timedelta(seconds=life.slot * LENGTH_S)
    register.quotas.set("c", {"vms": 1}, actor=ACTOR)  # after the time: not in it

    since = life.first + timedelta(seconds=LENGTH_S)
    decided = deciding_settings(register.history.last_decision(since, end), ControllerSettings())
    with register.history.read_period(since, end) as past:
        found = record_period(past, tmp_path / "registry", decided)
    summary = simulate(
        RunSpec(
            name="again",
            trace=TraceSpec(path=found.trace),
            hosts=found.hosts,
            tree=found.tree,
            quotas=found.quota_file,
            policy=decided.policy,
            parameters=decided.parameters,
            zone_policies={zone: its["policy"] for zone, its in decided.zone_policies.items()},
            zone_parameters={
                zone: its["parameters"] for zone, its in decided.zone_policies.items()
            },
            slot_length_s=decided.slot_length_s,
            budget_units=decided.budget_units,
            began_at_s=found.began_at_s,
            until_s=found.length_s,
        ),
        tmp_path / "run",
    )

    assert (found.vms_running, found.groups, found.quotas) == (3, 2, 2)
    assert summary["bad_rows"]["count"] == 0
    assert decided.zone_policies == {"east": {"policy": "best_fit", "parameters": {}}}
    committed, simulated = _committed(register, since), _simulated(tmp_path)
    assert sorted({slot for slot, *_ in committed}) == [0, 1, 2, 3]
    assert simulated == committed


def _committed(register: Registry, since: datetime) -> Counter[tuple[Any, ...]]:
    """Return how many VMs of which tenant and size each round placed on which host."""
    found: Counter[tuple[Any, ...]] = Counter()
    for summary in register.rounds.list().items:
        slot = (summary.slot_start_at - since).total_seconds() / LENGTH_S
        if slot < 0:
            continue
        stored = register.rounds.get(summary.number).decision()
        inputs = decode_inputs(stored.inputs)
        assert not summary.dropped
        for request, host, count in stored.outcome["placed"]:
            found[
                slot,
                inputs.names.tenants[inputs.snapshot.tenant[request]][1],
                int(inputs.snapshot.demand[request, 0]),
                inputs.names.hosts[host][1],
            ] += count
    return found


def _simulated(folder: Path) -> Counter[tuple[Any, ...]]:
    with (folder / "registry/trace.csv").open(newline="") as file:
        requested = [row for row in csv.DictReader(file) if not row["on_host"]]
    found: Counter[tuple[Any, ...]] = Counter()
    for row in pq.read_table(folder / "run/placements.parquet").to_pylist():
        size = int(requested[row["request"]]["vcpus"])
        found[row["start_s"] / LENGTH_S, row["tenant"], size, row["host"]] += row["count"]
    return found
