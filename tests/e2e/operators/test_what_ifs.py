"""What-ifs: the site simulated with something changed, by REST."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import pytest

from controller.rounds.policy_process import PolicyProcess
from registry.admin import WhatIfEvent, WhatIfState
from tests.e2e.conftest import Api
from tests.e2e.slots import run_slot
from tests.problems import the_problem
from tests.raw_sql import RawSql
from tests.register import ON_ANY_DATABASE, add_host, add_request

T = TypeVar("T")
PATIENCE_S = 900.0  # niceness 10, perhaps on a machine that others keep busy


def hosts(api: Api, count: int) -> None:
    for number in range(1, count + 1):
        add_host(api.registry, f"h{number}")


def until_over(api: Api, key: str) -> Any:
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        found = api.operator.get(f"/v1/what-ifs/{key}").json()
        if found["ended_at"] is not None:
            return found
        time.sleep(0.2)
    raise AssertionError(found)


@ON_ANY_DATABASE
def test_more_hosts_let_in_what_waits(api: Api, decider: PolicyProcess):
    hosts(api, 2)
    add_request(api.registry, 40, name="batch")
    run_slot(api.registry, decider)

    body = {"hours": 1, "add_hosts": {"count": 20, "like": "h1"}}
    requested = api.operator.post("/v1/what-ifs", json=body)
    assert requested.status_code == 201, requested.text
    over = until_over(api, requested.json()["id"])

    assert over["state"] == "finished", over["last_error"]
    assert over["progress"] == 1.0
    report = over["report"]
    inputs, before, after = (report[name] for name in ("inputs", "as_it_is", "what_if"))
    running = inputs["vms_running"]
    assert (running > 0, inputs["vms_waiting"]) == (True, 40 - running)
    assert (before["hosts"], after["hosts"]) == (2, 22)
    assert before["vms"]["placed"] < after["vms"]["placed"]
    assert after["vms"]["waiting"] == 0 or before["vms"]["waiting"] > after["vms"]["waiting"]
    assert before["waiting"][0]["tenant"] == "a"
    # Nothing was placed without the hosts: that what waits waited so long is told nevertheless.
    assert before["wait_s"]["mean_so_far"] > after["wait_s"]["mean_so_far"]
    (of_tenant,) = (each for each in before["tenants"] if each["tenant"] == "a")
    assert of_tenant["mean_wait_so_far_s"] > (of_tenant["mean_wait_s"] or 0.0)
    assert len(before["lines"]["at_s"]) == len(before["lines"]["used"]["vcpus"]) > 1
    listed = api.operator.get("/v1/what-ifs").json()["items"]
    assert [each["id"] for each in listed] == [over["id"]]
    assert "report" not in listed[0]
    kinds = [each["to_state"] for each in events_of(api, over["id"])]
    assert kinds == ["running", "finished"]


@ON_ANY_DATABASE
def test_a_memory_of_holdings_is_tried_before_it_is_switched_on(api: Api, decider: PolicyProcess):
    hosts(api, 2)
    add_request(api.registry, 40, name="batch")
    run_slot(api.registry, decider)

    requested = api.operator.post("/v1/what-ifs", json={"hours": 1, "fairness_memory_s": 21_600})
    assert requested.status_code == 201, requested.text
    over = until_over(api, requested.json()["id"])

    assert over["state"] == "finished", over["last_error"]
    assert over["arguments"]["fairness_memory_s"] == 21_600
    before, after = (over["report"][name]["vms"] for name in ("as_it_is", "what_if"))
    assert after == before  # one tenant alone


def events_of(api: Api, key: str) -> list[Any]:
    query = {"subject": key}
    return list(api.operator.get("/v1/events", params=query).json()["items"])


@pytest.mark.parametrize(
    ("body", "place"),
    [
        ({}, "add_hosts"),
        ({"add_hosts": {"count": 10**9, "like": "h1"}}, "count"),
        ({"add_hosts": {"count": -1, "like": "h1"}}, "count"),
        ({"add_hosts": {"count": 1}}, "like"),
        ({"add_hosts": {"count": 1, "like": "nobody"}}, "nobody"),
        ({"add_hosts": {"count": 1, "capacity": {"quarks": 4}}}, "quarks"),
        ({"remove_hosts": ["nobody"]}, "nobody"),
        ({"remove_hosts": ["label=nowhere"]}, "nowhere"),
        ({"remove_hosts": ["all"]}, "all"),
        ({"remove_hosts": ["x" * 100_000]}, "remove_hosts"),
        ({"policy": "no_such"}, "first_fit"),
        ({"policy": "fuga", "parameters": {"eta": 0}}, "eta"),
        ({"parameters": {"eta": 4}}, "parameters"),
        ({"weights": {"nobody": 2}}, "nobody"),
        ({"weights": {"a": -2}}, "weights"),
        ({"hours": 10_000, "policy": "first_fit"}, "hours"),
    ],
)
def test_what_cannot_be_is_refused_with_its_place(api: Api, body: dict[str, Any], place: str):
    hosts(api, 1)

    problem = the_problem(api.operator.post("/v1/what-ifs", json=body), 422, "invalid")

    assert place in str(problem)
    assert api.operator.get("/v1/what-ifs").json()["items"] == []


def test_tenants_ask_for_none_and_read_none(api: Api):
    hosts(api, 1)

    body = {"policy": "first_fit"}
    the_problem(api.tenant_a.post("/v1/what-ifs", json=body), 403, "forbidden")
    the_problem(api.tenant_a.get("/v1/what-ifs"), 403, "forbidden")


@ON_ANY_DATABASE
def test_one_runs_few_wait_and_the_others_are_told_who_runs(api: Api):
    what_ifs = api.registry.what_ifs
    mine = api.app.state.services.what_ifs.executor_id
    first, second, *_ = [what_ifs.create({"hours": 1}, mine, actor="ada") for _ in range(4)]

    assert what_ifs.report_progress(second.id, mine, 0.0) is WhatIfState.WAITING
    assert what_ifs.report_progress(first.id, mine, 0.25) is WhatIfState.RUNNING
    what_ifs.report_progress(first.id, mine, 0.5)
    hosts(api, 1)
    refused = the_problem(
        api.operator.post("/v1/what-ifs", json={"policy": "first_fit"}), 409, "conflict"
    )
    assert f"{first.id} of ada runs, 50 %" in refused["detail"]
    what_ifs.cancel(first.id, actor="bob")
    assert what_ifs.report_progress(first.id, mine, 0.6) is WhatIfState.CANCELLED
    assert what_ifs.report_progress(second.id, mine, 0.0) is WhatIfState.RUNNING
    what_ifs.end(second.id, mine, WhatIfEvent.FAILED, error="no")
    assert api.registry.check() == []


@ON_ANY_DATABASE
def test_what_a_killed_process_carried_is_interrupted(api: Api, raw: RawSql):
    what_ifs = api.registry.what_ifs
    theirs, mine = uuid4(), api.app.state.services.what_ifs.executor_id
    gone = what_ifs.create({"hours": 1, "policy": "first_fit"}, theirs, actor="ada")
    raw.run("UPDATE what_ifs SET lease_until = ?", "2020-01-01 00:00:00+00:00")

    shown = api.operator.get(f"/v1/what-ifs/{gone.id}").json()
    assert (shown["state"], shown["report"]) == ("interrupted", None)
    assert "is gone" in shown["last_error"]
    assert what_ifs.list(state=WhatIfState.INTERRUPTED).items[0].id == gone.id
    what_ifs.create({"hours": 1}, mine, actor="ada")
    assert [each["to_state"] for each in events_of(api, str(gone.id))] == ["interrupted"]


def test_a_cancelled_one_leaves_no_process(api: Api, decider: PolicyProcess):
    hosts(api, 2)
    add_request(api.registry, 1)
    run_slot(api.registry, decider)
    created = api.operator.post("/v1/what-ifs", json={"policy": "first_fit"}).json()
    end = time.monotonic() + PATIENCE_S
    while api.operator.get(f"/v1/what-ifs/{created['id']}").json()["state"] == "waiting":
        assert time.monotonic() < end

    over = api.operator.post(f"/v1/what-ifs/{created['id']}/cancel", json={}).json()

    assert (over["state"], over["cancelled_by"]) == ("cancelled", over["requested_by"])
    while api.app.state.services.what_ifs._threads:
        assert time.monotonic() < end
        time.sleep(0.1)
    the_problem(
        api.operator.post(f"/v1/what-ifs/{created['id']}/cancel", json={}),
        409,
        "illegal_transition",
    )


PARENT = """
import sys, time
from uuid import UUID
from controller.rest.app import build_what_if_executor
from controller.settings import ControllerSettings
from registry import Registry
registry = Registry.connect(sys.argv[1])
carried = build_what_if_executor(registry, ControllerSettings.model_construct())
asked = {"hours": 1, "add_hosts": None, "remove_hosts": [], "policy": "first_fit",
         "parameters": {}, "weights": {}}
carried.start(registry.what_ifs.create(asked, carried.executor_id, actor="ada").id, asked)
time.sleep(600)
"""


@pytest.mark.parametrize("register_url", ["sqlite"], indirect=True)
def test_its_process_dies_with_the_api(register_url: str, api: Api):
    hosts(api, 1)
    add_request(api.registry, 1)
    parent = subprocess.Popen([sys.executable, "-c", PARENT, register_url])
    try:
        children = Path(f"/proc/{parent.pid}/task").glob
        found = until(
            lambda: [c for each in children("*/children") for c in each.read_text().split()]
        )
    finally:
        parent.kill()
        parent.wait()

    assert until(lambda: not any(_lives(child) for child in found))


def _lives(pid: str) -> bool:
    try:
        return "what_ifs" in Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return False


def until(seen: Callable[[], T]) -> T:
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        if found := seen():
            return found
        time.sleep(0.1)
    raise AssertionError("it never came")
