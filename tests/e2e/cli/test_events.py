"""`fuga events`: the newest by default, by names, since a time, and followed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from datetime import timedelta

import pytest

from controller.queries.vm_explanation import explain_vm
from registry import Registry
from registry.hosts import FailurePolicy
from registry.requests import Vm
from tests.e2e.conftest import Api, Fuga
from tests.raw_sql import RawSql
from tests.readers import an_operator
from tests.register import a_cluster, add_host, add_request, place, start_vm, take_lease
from tests.servers.running import FUGA


def many(register: Registry, count: int) -> None:
    for number in range(count):
        register.events.add(
            actor="test", kind="noted", subject_type="slot", subject_id=f"s{number}", reason="r"
        )


def test_the_newest_are_listed_the_newest_below(register: Registry, fuga: Fuga) -> None:
    many(register, 130)

    output = fuga("events", "--last", "3").splitlines()

    assert [re.findall(r"slot s\d+", line) for line in output[2:5]] == [
        ["slot s127"],
        ["slot s128"],
        ["slot s129"],
    ]
    assert "slot s129" in fuga("events")
    assert "slot s29 " not in fuga("events")


def test_of_a_kind_that_none_has_it_says_which_kinds_there_are(
    register: Registry, fuga: Fuga
) -> None:
    many(register, 1)

    output = fuga("events", "--kind", "host")

    assert output == "no events of kind host; the newest 2 are of noted, token_created\n"


def test_subjects_have_names_and_are_found_by_them(register: Registry, fuga: Fuga) -> None:
    [host] = a_cluster(register)
    web = add_request(register, name="web")
    add_request(register, name="db")
    place(register, web, host)

    output = fuga("events")
    of_web = fuga("events", "--subject", "web")
    of_host = fuga("events", "--subject", "h1")
    unknown = fuga("events", "--subject", "nothing", status=2)

    assert "request web" in output
    assert "request db" in output
    assert "assignment of web-1" in output
    assert "request web" in of_web
    assert "db" not in of_web
    assert "host h1" in of_host
    assert "request" not in of_host
    assert "request, VM, host or volume 'nothing' not found" in unknown


def test_ids_without_a_name_end_as_they_do_in_every_list(register: Registry, fuga: Fuga) -> None:
    key = "019abcde-0000-7000-8000-0123456789ab"
    register.events.add(
        actor="test", kind="noted", subject_type="vm", subject_id=key, reason="gone"
    )

    assert "vm 456789ab" in fuga("events")


def test_only_those_since_a_time(register: Registry, raw: RawSql, fuga: Fuga) -> None:
    many(register, 2)
    raw.run(f"UPDATE events SET at = {raw.before('now', '7200 seconds')} WHERE subject_id = 's0'")

    output = fuga("events", "--since", "1h")

    assert "slot s1" in output
    assert "slot s0" not in output
    assert "wanted a span before now" in fuga("events", "--since", "tomorrow", status=2)


def test_a_tenant_reads_the_newest_of_its_own_alone(api: Api) -> None:
    for tenant in ("a", "b", "a"):
        add_request(api.registry, tenant=tenant, name=f"of-{tenant}-{time.monotonic_ns()}")

    page = api.tenant_a.get("/v1/events", params={"newest": True, "limit": 1}).json()

    [event] = page["items"]
    assert event["tenant"] == "a"
    assert page["next"] == event["id"]
    assert event["subject_name"].startswith("of-a-")
    since = api.registry.now() + timedelta(hours=1)
    later = api.tenant_a.get("/v1/events", params={"since": since.isoformat()}).json()
    assert later["items"] == []


@pytest.mark.usefixtures("fuga")  # the API and the environment
def test_followed_they_come_as_they_happen(register: Registry) -> None:
    many(register, 1)
    process = subprocess.Popen(
        [FUGA, "events", "--follow"], env=dict(os.environ), stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if "slot s0" in line:
                break
        register.events.add(
            actor="x", kind="later", subject_type="slot", subject_id="new", reason="why"
        )
        assert "later  slot new  why" in process.stdout.readline()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_a_vm_on_a_host_that_is_down_is_unknown_since_its_last_word(api: Api, raw: RawSql) -> None:
    host = add_host(api.registry, "h1")
    request = add_request(api.registry, tenant="a", name="web")
    done = place(api.registry, request, host, lease=take_lease(api.registry))
    start_vm(api.registry, done.assignment_ids[0])
    raw.run("UPDATE vms SET observed = 'running'")
    heard = raw.before("now", "600 seconds")
    where = f"/v1/requests/{request.id}/explanation"

    [before] = api.tenant_a.get("/v1/vms").json()["items"]
    raw.run(f"UPDATE hosts SET health = 'down', last_polled_at = {heard}")
    [after] = api.tenant_a.get("/v1/vms").json()["items"]
    [placed] = api.tenant_a.get(where).json()["vms"]
    raw.run("UPDATE hosts SET health = 'up'")
    [back] = api.tenant_a.get("/v1/vms").json()["items"]

    assert before["unknown_since"] is None
    assert {each["observed"] for each in (before, after, back)} == {"running"}
    assert after["unknown_since"] is not None
    assert placed["unknown_since"] == after["unknown_since"]
    assert back["unknown_since"] is None


@pytest.mark.parametrize(
    ("labels", "default", "to_operator"),
    [
        ([], "wait", "--by-hand`: then its VMs are rebuilt from their images elsewhere"),
        (["shared_pool=nfs"], "wait", "--by-hand`: then its VMs start elsewhere with their disks"),
        (["on_failure=wait"], "rebuild", "`fuga host show h1` has its last error"),
        (["on_failure=replace"], "wait", "only that host has its disk"),
    ],
)
def test_a_vm_that_waits_for_a_dead_host_says_since_when_and_what_to_do(
    api: Api, raw: RawSql, labels: list[str], default: str, to_operator: str
) -> None:
    vm = a_vm_on_a_dead_host(api, raw, labels)
    operator = an_operator(api.registry)

    explanation = explain_vm(
        api.registry, vm.id, operator, on_failure=FailurePolicy(default)
    ).message
    to_tenant = api.tenant_a.get(f"/v1/vms/{vm.id}/explanation").json()["message"]

    assert vm.unknown_since is not None
    assert f"its host answered last at {vm.unknown_since:%Y-%m-%d %H:%M:%S} UTC" in explanation
    assert "it waits for its host" in explanation
    assert to_operator in explanation
    assert "it waits for its host" in to_tenant
    assert "an operator can start its host again; or delete the VM" in to_tenant
    assert "fence" not in to_tenant


def test_an_explanation_goes_by_the_setting_of_the_control_centres(api: Api, raw: RawSql) -> None:
    vm = a_vm_on_a_dead_host(api, raw, [])
    api.registry.processes.register(
        "control", "cc:1", "m1", 1, stamp_of=str, settings={"FUGA_ON_FAILURE": "rebuild"}
    )
    api.registry.processes.record_heartbeat("control", "cc:1", None)

    shown = api.tenant_a.get(f"/v1/vms/{vm.id}/explanation").json()["message"]

    assert "it waits for its host" not in shown


def test_a_vm_that_is_built_anew_by_the_sites_setting_does_not_wait(api: Api, raw: RawSql) -> None:
    vm = a_vm_on_a_dead_host(api, raw, [])

    explanation = explain_vm(
        api.registry, vm.id, an_operator(api.registry), on_failure=FailurePolicy.REBUILD
    )

    assert "once its host is proven to be off it is rebuilt from its image" in explanation.message
    assert "waits" not in explanation.message


def a_vm_on_a_dead_host(api: Api, raw: RawSql, labels: list[str]) -> Vm:
    host = add_host(api.registry, "h1", labels=labels)
    request = add_request(api.registry, tenant="a", name="web")
    done = place(api.registry, request, host, lease=take_lease(api.registry))
    start_vm(api.registry, done.assignment_ids[0])
    heard = raw.before("now", "600 seconds")
    raw.run("UPDATE vms SET observed = 'running'")
    raw.run(f"UPDATE hosts SET health = 'down', last_polled_at = {heard}")
    return api.registry.vms.list().items[0]


def test_lists_and_counts_agree_with_what_a_vm_on_a_silent_host_says(
    register: Registry, raw: RawSql, fuga: Fuga
) -> None:
    loud, silent = a_cluster(register, 2)
    lease = take_lease(register)
    wanted = add_request(register, name="web", count=3)
    for host, count in ((loud, 1), (silent, 2)):
        for each in place(register, wanted, host, count, lease).assignment_ids:
            start_vm(register, each)
    raw.run("UPDATE vms SET observed = 'running'")
    add_request(register, tenant="b", name="waits")

    def told() -> tuple[dict[str, list[str]], tuple[int, int], tuple[int, int]]:
        lists = {
            state: [
                each["name"] for each in json.loads(fuga("vms", "--state", state, "-o", "json"))
            ]
            for state in ("running", "unknown", "stopped")
        }
        [request] = [
            each for each in json.loads(fuga("requests", "-o", "json")) if each["name"] == "web"
        ]
        explained = json.loads(fuga("explain", "web", "-o", "json"))
        return (
            lists,
            (request["vms_running"], request["vms_unknown"]),
            (explained["running"], explained["unknown"]),
        )

    before = told()
    raw.run("UPDATE hosts SET health = 'unreachable' WHERE name = 'h2'")
    after = told()
    raw.run("UPDATE vms SET observed = 'stopped' WHERE name = 'web-3'")
    stopped = told()

    assert before == (
        {"running": ["web-1", "web-2", "web-3"], "unknown": [], "stopped": []},
        (3, 0),
        (3, 0),
    )
    assert after == (
        {"running": ["web-1"], "unknown": ["web-2", "web-3"], "stopped": []},
        (1, 2),
        (1, 2),
    )
    assert stopped == after
    assert "web-2" in fuga("vms", "--state", "unknown")
    assert "web-1" not in fuga("vms", "--state", "unknown")
    assert "2: unknown" in fuga("requests")
    assert "1 running, 2 unknown" in fuga("explain", "web")
