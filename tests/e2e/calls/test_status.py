"""Nobody decides, builds or looks at hosts: whoever asks is told, and since when."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest

from controller.fleet_metrics import FleetCollector
from controller.queries.overdue_work import overdue_work
from controller.rest.health import FULL
from registry import Registry
from registry.admin import ProcessHeartbeat
from service import Check
from service.heartbeat import sending_heartbeats
from service.version import release
from tests.e2e.conftest import Api, Fuga
from tests.raw_sql import RawSql
from tests.register import add_host, add_request, add_tenant, add_vm_type, place, take_lease

WELL = [Check("database", True, "it answers")]
KINDS = ("control", "worker", "monitor")


@contextmanager
def all_heard(registry: Registry) -> Iterator[None]:
    """A site at work: somebody leads, a slot was decided, and each kind of process is heard."""
    take_lease(registry, "cc:1")
    registry.slot_loop.record_decided_slot(registry.now(), 5)
    for kind in KINDS:
        registry.processes.register(
            kind, f"{kind}:1", "m1", 1, stamp_of=lambda _: "s", release=release()
        )
        registry.processes.record_heartbeat(kind, f"{kind}:1", None)
    yield


def silence(raw: RawSql, kind: str, seconds: int = 60) -> None:
    """Let a kind of process be silent, as far as the database is concerned."""
    then = raw.before("now", f"{seconds} seconds")
    raw.run(f"UPDATE processes SET heartbeat_at = {then} WHERE kind = ?", kind)


FULL_DISK = "the disk of the database has 0 MiB free, less than its margin of 25 MiB"


@pytest.mark.parametrize(
    ("disks", "said"),
    [
        ([FULL_DISK], f"no {{}} responds: {{}}:1; perhaps it cannot write: {FULL_DISK}"),
        ([FULL], f"no {{}} responds: {{}}:1; perhaps it cannot write: {FULL}"),
        (["the disk of the image store has 0 MiB free"], "no {} responds: {}:1"),
    ],
)
def test_a_disk_of_the_database_that_is_full_is_named_with_the_processes_that_are_silent(
    api: Api, raw: RawSql, disks: list[str], said: str
) -> None:
    with all_heard(api.registry):
        for kind in KINDS:
            silence(raw, kind)
        late = overdue_work(api.registry.liveness(), disks)

    called = {"build": "worker", "poll": "monitor"}
    messages = {each.work: each.message for each in late}
    assert {work: messages[work] for work in called} == {
        work: said.format(name, name) for work, name in called.items()
    }


def test_a_disk_that_still_takes_writes_does_not_hide_a_dead_process(api: Api, raw: RawSql) -> None:
    with all_heard(api.registry):
        silence(raw, "monitor")
        [late] = overdue_work(api.registry.liveness(), [FULL_DISK])
        [full] = overdue_work(api.registry.liveness(), [FULL])

    assert late.message == "no monitor responds: monitor:1"
    assert full.message == f"{late.message}; perhaps it cannot write: {FULL}"


def test_a_site_at_work_is_well_and_names_who_does_what(api: Api) -> None:
    add_host(api.registry, "h1")
    with all_heard(api.registry):
        body = api.operator.get("/v1/status").json()

    assert body["healthy"] is True
    assert body["late"] == []
    assert body["leader"] == "cc:1"
    assert body["leads_since"] is not None
    assert body["last_slot_at"] is not None
    assert {each["name"]: each["late"] for each in body["processes"]} == dict.fromkeys(
        ("control:1", "monitor:1", "worker:1"), False
    )
    assert body["hosts"]["active"] == 1


@pytest.mark.parametrize(
    ("kind", "what"), [("control", "decide"), ("worker", "build"), ("monitor", "poll")]
)
def test_frozen_processes_are_late_to_everybody_who_asks(
    api: Api, raw: RawSql, kind: str, what: str
) -> None:
    with all_heard(api.registry):
        silence(raw, kind)
        body = api.operator.get("/v1/status").json()
        to_tenant = api.tenant_a.get("/v1/status").json()
        ready = api.stranger.get("/readyz")
        metrics = {
            sample.labels["work"]: sample.value
            for family in FleetCollector(api.registry, interval_s=0, max_series=10).collect()
            for sample in family.samples
            if sample.name == "fuga_work_unattended"
        }

    assert not body["healthy"]
    assert [(each["work"], each["unattended"]) for each in body["late"]] == [(what, True)]
    assert f"{kind}:1" in body["late"][0]["message"]
    assert body["late"][0]["since"] is not None
    assert [each["work"] for each in to_tenant["late"]] == [what]
    assert f"{kind}:1" not in str(to_tenant)
    assert (to_tenant["leader"], to_tenant["release"]) == (None, None)
    assert (ready.status_code, ready.json()["unattended"]) == (200, [what])
    assert metrics == {each: float(each == what) for each in ("decide", "build", "poll")}


def test_one_silent_worker_of_two_is_late_and_the_others_build(api: Api, raw: RawSql) -> None:
    with all_heard(api.registry):
        silence(raw, "worker")
        api.registry.processes.register("worker", "worker:2", "m2", 2, stamp_of=lambda _: "s")
        api.registry.processes.record_heartbeat("worker", "worker:2", "broker: it does not answer")
        body = api.operator.get("/v1/status").json()

    assert [(each["unattended"], each["message"]) for each in body["late"]] == [
        (False, "worker worker:1 does not respond"),
        (False, "worker worker:2: broker: it does not answer"),
    ]


def test_processes_of_another_release_than_the_apis_are_named(
    register: Registry, raw: RawSql, fuga: Fuga
) -> None:
    with all_heard(register):
        alike = fuga("status"), fuga("doctor", status=1)
        raw.run("UPDATE processes SET release = '0.0.9 (abc)' WHERE kind = 'worker'")
        raw.run("UPDATE processes SET release = NULL WHERE kind = 'monitor'")
        body = json.loads(fuga("status", "-o", "json"))
        unlike = fuga("status"), fuga("doctor", status=1)

    assert body["release"] == release()
    assert {each["name"]: each["release"] for each in body["processes"]} == {
        "control:1": release(),
        "monitor:1": None,
        "worker:1": "0.0.9 (abc)",
    }
    for said in alike:
        assert release() in said
        assert "another release" not in said
    for said in (" ".join(each.split()) for each in unlike):
        assert "monitor:1 an older one, worker:1 0.0.9 (abc)" in said


def test_a_leader_that_starts_again_and_again_and_decides_nothing_is_late(
    api: Api, raw: RawSql
) -> None:
    with all_heard(api.registry):
        raw.run(f"UPDATE slot_loop SET last_slot_at = {raw.before('now', '90 seconds')}")
        [late] = api.operator.get("/v1/status").json()["late"]
        request = add_request(api.registry, tenant="a")
        why = api.tenant_a.get(f"/v1/requests/{request.id}/explanation").json()["waiting"]
        api.registry.slot_loop.pause("new storage", actor="cli")
        paused = api.operator.get("/v1/status").json()

    assert late["message"] == "no slot was decided although cc:1 leads"
    assert late["unattended"]
    assert why["message"].startswith("no control centre decides since ")
    assert "cc:1" not in str(why)
    assert why["undecided"]["since"] == late["since"]
    assert (paused["healthy"], paused["paused"]) == (True, True)


def test_a_lease_that_ran_out_is_told_with_its_last_holder(api: Api, raw: RawSql) -> None:
    with all_heard(api.registry):
        raw.run(f"UPDATE leases SET expires_at = {raw.before('now', '9 seconds')}")
        body = api.operator.get("/v1/status").json()

    assert body["leader"] is None
    assert [each["message"] for each in body["late"]] == [
        "no control centre leads: cc:1 was the last"
    ]


def test_what_is_placed_and_not_built_says_that_no_worker_is_heard(api: Api, raw: RawSql) -> None:
    host = add_host(api.registry, "h1")
    request = add_request(api.registry, tenant="a")
    with all_heard(api.registry):
        place(api.registry, request, host, lease=take_lease(api.registry, "cc:1"))
        where = f"/v1/requests/{request.id}/explanation"
        assert api.tenant_a.get(where).json()["unbuilt"] is None
        silence(raw, "worker")
        why = api.tenant_a.get(where).json()["unbuilt"]
        unbuilt_at = api.operator.get("/v1/status").json()["oldest_unbuilt_at"]

    assert why.startswith("no worker creates VMs since ")
    assert unbuilt_at is not None


def test_a_beat_tells_of_readiness_and_an_end_is_no_silence(register: Registry) -> None:
    checks = [Check("broker", False, "it does not answer")]
    with sending_heartbeats(register, "worker", "w", ready=lambda: checks, interval_s=0.05):
        first = heard_with(register, "broker: it does not answer")
        checks[:] = WELL
        second = heard_with(register, None)

    assert second.started_at == first.started_at
    assert second.heartbeat_at > first.heartbeat_at
    assert register.liveness().processes == ()


def heard_with(register: Registry, trouble: str | None) -> ProcessHeartbeat:
    for _ in range(400):
        for each in register.liveness().processes:
            if each.trouble == trouble:
                return each
        time.sleep(0.02)
    raise AssertionError(f"nobody was heard with {trouble!r}")


def test_a_killed_process_is_forgotten_when_its_like_starts_and_a_frozen_one_is_not(
    register: Registry,
) -> None:
    for name, pid in (("killed", 11), ("frozen", 12)):
        register.processes.register("worker", name, "m1", pid, stamp_of=lambda _: "s")
    register.processes.register("monitor", "other kind", "m1", 11, stamp_of=lambda _: "s")
    register.processes.register("worker", "elsewhere", "m2", 11, stamp_of=lambda _: "s")

    register.processes.register(
        "worker", "new", "m1", os.getpid(), stamp_of=lambda pid: None if pid == 11 else "s"
    )

    assert {each.name for each in register.liveness().processes} == {
        "frozen",
        "other kind",
        "elsewhere",
        "new",
    }


def test_operators_read_the_settings_of_processes_that_live(api: Api, raw: RawSql) -> None:
    begin, stamp = api.registry.processes.register, lambda _: "s"
    for name, settings in (("c1", {"FUGA_POLICY": "drf"}), ("dead", {}), ("old", None)):
        begin("control", name, name, 1, stamp_of=stamp, settings=settings)
    raw.run("UPDATE processes SET heartbeat_at = " + raw.before("now", "60 seconds")
            + " WHERE name = 'dead'")  # fmt: skip

    body = api.operator.get("/v1/settings/processes").json()
    refused = api.tenant_a.get("/v1/settings/processes")

    assert body["items"] == [{"kind": "control", "name": "c1", "settings": {"FUGA_POLICY": "drf"}}]
    assert refused.status_code == 403


def test_a_killed_process_whose_id_another_program_has_is_forgotten(register: Registry) -> None:
    register.processes.register("worker", "killed", "m1", 11, stamp_of=lambda _: "boot 5")

    register.processes.register("worker", "new", "m1", 12, stamp_of=lambda pid: f"boot {pid - 2}")

    assert [each.name for each in register.liveness().processes] == ["new"]


def test_the_leader_is_known_since_it_took_the_lease_not_since_it_renewed_it(
    register: Registry,
) -> None:
    lease = take_lease(register)

    renewed = register.leases.renew(lease, 900)

    found = register.liveness().lease
    assert found is not None
    assert found.held_since == lease.held_since == renewed.held_since
    assert found.expires_at - found.held_since > timedelta(seconds=800)


def test_status_and_doctor_say_in_words_that_nobody_decides(
    register: Registry, raw: RawSql, fuga: Fuga
) -> None:
    add_vm_type(register)
    add_tenant(register)
    add_request(register, name="web")

    untouched = fuga("status", status=1)
    doctor = fuga("doctor", status=1)
    assert "no control centre leads yet" in untouched
    assert "no control centre leads yet" in doctor
    assert "no worker responds" in doctor
    assert "no control centre decides, so no VM is placed" in " ".join(
        fuga("explain", "web").split()
    )

    with all_heard(register):
        output = fuga("status")
        assert "cc:1 since" in output
        assert "WRONG  workers" not in fuga("doctor", status=1)  # there are no hosts
        silence(raw, "monitor")
        assert "no monitor responds: monitor:1 since" in fuga("status", status=1)
        assert "LATE" in fuga("status", status=1)
