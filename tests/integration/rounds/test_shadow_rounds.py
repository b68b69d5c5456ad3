"""A second policy decides recorded rounds beside the first, and touches nothing."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from controller.cli.operating.shadow import agreement_summary, print_comparison
from controller.control_center.purge import purge_all
from controller.rounds.policy_process import PolicyProcess
from controller.shadow.metrics import ShadowMetrics
from controller.shadow.shadow_decider import MAX_BEHIND, SecondPolicy, ShadowDecider
from placement.catalog.zone_policies import NamedPolicy
from registry import Registry, upgrade
from registry.admin import Periods
from registry.rounds import CONTROL_LEASE
from service import ProcessMetrics
from tests.e2e.slots import CHOICE, run_slot
from tests.register import a_cluster, add_host, add_request, add_tenant, add_vm_type, take_lease
from tests.servers.running import FUGA, eventually

#: Only against a hang: processes start slowly on a busy machine.
PATIENCE_S = 600.0


@pytest.fixture
def metrics() -> ProcessMetrics:
    return ProcessMetrics("control")


@pytest.fixture
def beside(register: Registry, metrics: ProcessMetrics, decider: PolicyProcess):
    """Return what makes a second policy, whose rounds the test begins."""
    counted = ShadowMetrics(metrics)

    def make(
        policy: str = "first_fit",
        deadline_s: float = PATIENCE_S,
        leads: bool = True,
        zones: Mapping[str, NamedPolicy] | None = None,
    ):
        lease = take_lease(register) if leads else None
        second = SecondPolicy(name=policy, parameters={}, deadline_s=deadline_s, zones=zones)
        # The test begins rounds and these in turn: one process serves both.
        return ShadowDecider(
            register, lambda: lease, second, process=decider, metrics=counted, interval_s=PATIENCE_S
        )

    return make


@pytest.fixture
def cluster(register: Registry) -> Registry:
    """Two hosts, and more asked for than fits."""
    for name in ("h1", "h2"):
        add_host(register, name, vcpus=4, memory_mib=8192, disk_gib=200)
    for name in ("a", "b"):
        add_tenant(register, name)
    add_vm_type(register, "small", vcpus=1, memory_mib=1024, disk_gib=10)
    add_vm_type(register, "large", vcpus=3, memory_mib=4096, disk_gib=10)
    add_request(register, 4, name="smalls")
    add_request(register, 3, name="larges", tenant="b", vm_type="large")
    return register


def test_what_a_second_policy_would_have_done_is_kept_beside(
    cluster: Registry, decider: PolicyProcess, beside, metrics: ProcessMetrics
) -> None:
    run_slot(cluster, decider)
    [before] = cluster.rounds.list().items
    shadow = beside("first_fit")

    decided, nothing = shadow.decide_next(), shadow.decide_next()

    [kept] = cluster.shadows.list().items
    assert nothing is None
    assert (kept.round, kept.policy, kept.first_policy) == (before.number, "first_fit", "fuga")
    assert kept.first is not None
    assert kept.decided is not None
    assert decided is not None
    assert (kept.first, kept.decided) == (decided.first, decided.decided)
    assert (kept.first.placed, kept.first.left_out) == (before.placed, before.left_out)
    assert kept.first.fair_distance == pytest.approx(before.fair_distance)
    assert kept.decided.placed + kept.decided.left_out == 7
    assert 0 <= (kept.agreed or 0) <= kept.first.placed
    assert {share["tenant"] for share in kept.shares} <= {"a", "b"}
    shown = {share["tenant"]: share["after"] for share in before.shares}
    assert all(share["first"] == shown[share["tenant"]] for share in kept.shares)
    text = metrics.text().decode()
    assert 'fuga_shadow_rounds_total{outcome="decided"} 1.0' in text
    assert f"fuga_shadow_vms_agreed_total {kept.agreed}.0" in text
    # Nothing but the record has changed.
    assert cluster.rounds.list().items == (before,)
    assert cluster.check() == []


def test_the_same_policy_agrees_with_itself(
    cluster: Registry, decider: PolicyProcess, beside
) -> None:
    run_slot(cluster, decider)

    found = beside("fuga").decide_next()

    assert found.agreed == found.first.placed == found.decided.placed > 0
    assert found.first == found.decided
    assert all(share["first"] == share["second"] for share in found.shares)


def test_one_that_does_not_decide_is_told_and_the_next_round_is_decided(
    cluster: Registry, decider: PolicyProcess, beside, metrics: ProcessMetrics
) -> None:
    run_slot(cluster, decider)
    beside(deadline_s=1e-6).decide_next()
    add_request(cluster, 1, name="more", tenant="b")
    run_slot(cluster, decider, 2)
    found = beside().decide_next()

    newest, oldest = cluster.shadows.list().items
    assert "exceeded its time of 1e-06 s" in (oldest.error or "")
    assert (oldest.decided, oldest.agreed) == (None, None)
    assert (newest.error, newest.decided) == (None, found.decided)
    assert 'fuga_shadow_rounds_total{outcome="failed"} 1.0' in metrics.text().decode()


def test_one_that_is_over_its_budget_says_so(
    cluster: Registry, decider: PolicyProcess, beside
) -> None:
    run_slot(cluster, decider, choice=replace(CHOICE, name="first_fit", budget_units=1))

    found = beside("fuga").decide_next()

    assert found.cut
    assert found.error is None
    assert found.decided.placed > 0  # what the budget did not reach is placed by Best-Fit DRFH


def test_what_each_tenant_would_have_got_is_told(
    cluster: Registry, decider: PolicyProcess, beside
) -> None:
    run_slot(cluster, decider)

    found = beside("first_fit").decide_next()

    [kept] = cluster.shadows.list().items
    assert cluster.shadows.get(kept.round) == kept
    assert cluster.shadows.get(kept.round + 1) is None
    assert [(share["tenant"], share["asked"]) for share in kept.shares] == [("a", 4), ("b", 3)]
    for name, total in (
        ("placed_first", found.first.placed),
        ("placed_second", found.decided.placed),
        ("agreed", found.agreed),
    ):
        assert sum(share[name] for share in kept.shares) == total


def test_rounds_of_a_time_are_listed(cluster: Registry, decider: PolicyProcess, beside) -> None:
    shadow = beside()
    for number in (1, 2, 3):
        add_request(cluster, 1, name=f"r{number}")
        run_slot(cluster, decider, number)
        shadow.decide_next()

    def listed(**moments: datetime) -> list[int]:
        return [each.round for each in cluster.shadows.list(**moments).items]

    starts = [datetime(2026, 1, 1, 0, minute, tzinfo=UTC) for minute in (1, 2, 3)]
    assert listed() == [3, 2, 1]
    assert listed(since=starts[1]) == [3, 2]
    assert listed(since=starts[1], until=starts[2]) == [2]
    assert listed(until=starts[0]) == []


EAST = {"east": NamedPolicy(policy="best_fit", parameters={})}


@pytest.mark.parametrize(
    ("zones", "expected"),
    [
        (None, {"": "first_fit", "east": "best_fit"}),
        ({}, {}),
        ({"west": NamedPolicy(policy="slots", parameters={})}, {"": "first_fit", "west": "slots"}),
    ],
    ids=["those of the round", "none", "its own"],
)
def test_zones_are_decided_as_settings_say(
    register: Registry, decider: PolicyProcess, beside, zones, expected
) -> None:
    add_vm_type(register)
    add_tenant(register)
    for name in ("east", "west"):
        add_host(register, name, vcpus=4, labels=(f"zone={name}",))
    add_request(register, 6)
    run_slot(register, decider, choice=replace(CHOICE, zones=EAST))

    found = beside("first_fit", zones=zones).decide_next()

    assert found.error is None
    assert found.first.zones == {"": "fuga", "east": "best_fit"}
    assert found.decided.zones == expected
    assert found.decided.placed == found.first.placed == 6


def test_who_does_not_lead_decides_nothing_and_writes_nothing(
    cluster: Registry, decider: PolicyProcess, beside, raw
) -> None:
    run_slot(cluster, decider)
    follower, once_leader = beside(leads=False), beside()
    over = raw.before("now", "1 seconds")
    raw.run(f"UPDATE leases SET expires_at = {over} WHERE name = ?", CONTROL_LEASE)
    take_lease(cluster, "cc-2")

    assert follower.decide_next() is None
    assert once_leader.decide_next() is None
    assert cluster.shadows.list().items == ()


def test_rounds_that_it_cannot_keep_up_with_are_passed_over(
    register: Registry, decider: PolicyProcess, beside
) -> None:
    a_cluster(register)

    def rounds(number: int, first: int) -> None:
        for each in range(first, first + number):
            add_request(register, 1, name=f"r{each}")
            run_slot(register, decider, each % 60)

    rounds(1, 1)
    shadow = beside()
    shadow.decide_next()
    rounds(3, 2)

    due = register.shadows.next_due_round(2)

    assert MAX_BEHIND > 2
    assert due is not None
    assert (due.number, due.skipped) == (3, 1)


def test_it_is_kept_as_long_as_its_round(
    register: Registry, decider: PolicyProcess, beside, raw
) -> None:
    a_cluster(register)
    add_request(register, 1, requires=("gpu",))  # placed nowhere: nothing else keeps its round
    run_slot(register, decider)
    beside().decide_next()
    purge_all(register, Periods(inputs_days=1, rounds_days=2))
    assert len(register.shadows.list().items) == 1

    long_ago = raw.before("now", "30 days")
    raw.run(f"UPDATE rounds SET created_at = {long_ago}")
    purge_all(register, Periods(inputs_days=1, rounds_days=2))

    assert register.rounds.last() is None
    assert register.shadows.list().items == ()


def test_one_round_is_told_beside_what_was_done(capsys) -> None:
    measured = {"placed": 4, "left_out": 1, "used": {"vcpus": 0.5}, "fair_distance": 0.25}
    share = {"tenant": "a", "before": 0.1, "first": 0.3, "second": 0.25}
    counts = {"asked": 5, "placed_first": 4, "placed_second": 3, "agreed": 2}
    row = {
        "policy": "first_fit",
        "error": None,
        "agreed": 2,
        "seconds": 0.5,
        "cut": True,
        "first": measured | {"zones": {"": "fuga", "east": "slots"}},
        "decided": measured | {"placed": 3, "zones": {}},
        "shares": [share | counts, share | {"tenant": "b"}],
    }

    print_comparison(row)
    print_comparison({"policy": "first_fit", "error": "it raised"})

    text = capsys.readouterr().out
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "placed 4 / 3" in lines
    assert "in use 50.0% / 50.0%" in lines
    assert "in zones elsewhere: fuga, east: slots / the same everywhere" in lines
    assert "cut the round's budget cut its search" in lines
    assert "a 5 4 / 3 2 0.100 0.300 0.250 -0.050" in lines
    assert "b - - - 0.100 0.300 0.250 -0.050" in lines  # of a round of an earlier version
    assert lines[-1] == "not decided: it raised"


def test_a_window_is_summed_up() -> None:
    def row(agreed: int, skipped: int = 0) -> dict[str, Any]:
        shown = {"placed": 4, "fair_distance": 0.25}
        return {
            "first": shown,
            "decided": shown | {"placed": 5},
            "agreed": agreed,
            "seconds": 0.5,
            "skipped": skipped,
        }

    failed = {"first": None, "decided": None, "skipped": 0}

    assert agreement_summary([row(2), row(3, skipped=7), failed]) == (
        "2 rounds; 8 VMs placed, 10 by the second policy; 5 (50%) on the same host; "
        "distance from fair 25.0%, 25.0% by the second; which took 0.500 s (median); 1 failed; "
        "7 skipped"
    )


RAISES_THEN_HANGS = """
import time
from pathlib import Path

from placement import CatalogEntry

MARKS = Path(__file__).parent


class Troubled:
    def place(self, snapshot, rng, budget):
        if not (MARKS / "raised").exists():
            (MARKS / "raised").touch()
            raise RuntimeError("no idea")
        (MARKS / "hangs").touch()
        while True:
            time.sleep(60)


TROUBLED = CatalogEntry(
    summary="raises, then hangs",
    parameters=frozenset(),
    make=lambda given: Troubled(),
)
"""


@pytest.mark.sqlite
def test_rounds_of_a_control_centre_stand_whatever_the_second_policy_does(
    tmp_path: Path, upgraded_database: Path
) -> None:
    url = f"sqlite:///{tmp_path / 'fuga.db'}"
    upgrade(url)
    registry = Registry.connect(url)
    a_cluster(registry)
    site = tmp_path / "site"
    info = site / "troubled-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: troubled\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[fuga.policies]\ntroubled = troubled:TROUBLED\n")
    (site / "troubled.py").write_text(RAISES_THEN_HANGS)
    env = {
        **{key: value for key, value in os.environ.items() if not key.startswith("FUGA_")},
        "FUGA_STATE_DIR": str(tmp_path),
        "FUGA_DATABASE_URL": url,
        "FUGA_SLOT_LENGTH_S": "1",
        "FUGA_POLICY_DEADLINE_S": "600",
        "FUGA_SHADOW_POLICY": "troubled",
        "FUGA_SHADOW_DEADLINE_S": "3600",
        "PYTHONPATH": str(site),
    }
    log = (tmp_path / "control.log").open("wb")
    centre = subprocess.Popen(
        [FUGA, "control"], env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log
    )

    def placed(number: int) -> int:
        add_request(registry, 1, name=f"r{number}")
        eventually(
            lambda: (last := registry.rounds.last()) and last.number == number, within_s=PATIENCE_S
        )
        return registry.rounds.get(number).placed

    try:
        assert placed(1) == 1
        eventually(lambda: registry.shadows.list().items, within_s=PATIENCE_S)
        assert placed(2) == 1
        eventually((site / "hangs").exists, within_s=PATIENCE_S)
        assert placed(3) == 1  # while it hangs
        centre.send_signal(signal.SIGTERM)
        assert centre.wait(PATIENCE_S) == 0
    finally:
        centre.kill()
        centre.wait()
        log.close()
    [shown] = registry.shadows.list().items
    registry.close()
    assert shown.round == 1
    assert "RuntimeError: no idea" in (shown.error or "")
