"""Pausing the slot loop: nothing is decided until an operator resumes it, whoever leads."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from controller.control_center.leadership import Leadership
from controller.control_center.metrics import SlotMetrics
from controller.control_center.slot_loop import SlotLoopRunner
from controller.rounds.interfaces import PolicyChoice, Slot
from controller.rounds.policy_process import PolicyProcess
from registry import SlotLoopPausedError
from service import ProcessMetrics
from tests.e2e.conftest import Api
from tests.e2e.slots import run_slot
from tests.problems import places, the_problem
from tests.register import a_commit, add_host, take_lease

PAUSE, RESUME = "/v1/slot-loop/pause", "/v1/slot-loop/resume"


def test_from_pause_to_resume(api: Api, decider: PolicyProcess) -> None:
    add_host(api.registry, "h1")
    never = {"state": "running", "reason": None, "changed_by": None, "changed_at": None}
    assert api.operator.get("/v1/slot-loop").json() == never
    created = api.tenant_a.post("/v1/requests", json={"vm_type": "small", "count": 1}).json()

    paused = api.operator.post(PAUSE, json={"reason": "new storage"})

    assert paused.status_code == 200
    assert (paused.json()["state"], paused.json()["reason"]) == ("paused", "new storage")
    assert paused.json()["changed_by"] == "operator:ops-token"
    body = api.tenant_a.get("/v1/slot-loop").json()
    assert (body["state"], body["reason"], body["changed_by"]) == ("paused", "new storage", None)
    with pytest.raises(SlotLoopPausedError, match="new storage"):
        run_slot(api.registry, decider)
    why = api.tenant_a.get(f"/v1/requests/{created['id']}/explanation").json()["waiting"]
    assert why["paused"] == {"since": paused.json()["changed_at"], "reason": "new storage"}
    assert "an operator paused the slot loop: new storage" in why["message"]

    resumed = api.operator.post(RESUME)

    assert resumed.json()["state"] == "running"
    run_slot(api.registry, decider)
    [vm] = api.tenant_a.get("/v1/vms").json()["items"]
    assert vm["host"]
    events = api.operator.get("/v1/events", params={"kind": "slot_loop"}).json()["items"]
    assert [(each["actor"], each["to_state"], each["reason"]) for each in events] == [
        ("operator:ops-token", "paused", "new storage"),
        ("operator:ops-token", "running", None),
    ]
    assert api.registry.check() == []


def test_only_operators_pause_and_only_what_runs(api: Api) -> None:
    body = {"reason": "maintenance"}
    the_problem(api.tenant_a.post(PAUSE, json=body), 403, "forbidden")
    the_problem(api.stranger.post(PAUSE, json=body), 401, "unauthorized")
    the_problem(api.operator.post(RESUME), 409, "illegal_transition")
    key = {"Idempotency-Key": "once"}
    first = api.operator.post(PAUSE, json=body, headers=key)
    assert api.operator.post(PAUSE, json=body, headers=key).json() == first.json()
    the_problem(api.operator.post(PAUSE, json=body), 409, "illegal_transition")
    the_problem(api.tenant_a.post(RESUME), 403, "forbidden")
    assert api.operator.get("/v1/slot-loop").json() == first.json()


@pytest.mark.parametrize("body", [{}, {"reason": ""}, {"reason": "a\nb"}, {"reason": "x" * 201}])
def test_a_reason_is_one_line(api: Api, body: dict[str, str]) -> None:
    assert places(the_problem(api.operator.post(PAUSE, json=body), 422, "invalid")) == ["#/reason"]


def test_a_round_under_way_when_it_is_paused_commits_nothing(api: Api) -> None:
    lease = take_lease(api.registry)
    api.registry.rounds.read_cluster(lease)

    api.operator.post(PAUSE, json={"reason": "stop"})

    with pytest.raises(SlotLoopPausedError):
        api.registry.rounds.commit_round(a_commit(lease))
    assert api.registry.rounds.last() is None


def test_a_leader_tells_that_its_slot_is_paused(api: Api, decider: PolicyProcess) -> None:
    api.operator.post(PAUSE, json={"reason": "stop"})
    metrics = ProcessMetrics("control")
    leadership = Leadership(api.registry, "cc-1", 600)
    loop = SlotLoopRunner(
        api.registry,
        leadership,
        decider,
        PolicyChoice(name="fuga", parameters={}, budget_units=1000, decision_time_s=60),
        slot_length_s=60,
        on_committed=lambda: None,
        metrics=SlotMetrics(metrics),
    )
    lease = leadership.take()
    assert lease is not None

    loop.run_slot(Slot(start_at=datetime(2026, 1, 1, tzinfo=UTC), length_s=60), lease)

    assert b'fuga_slots_total{outcome="paused"} 1.0' in metrics.text()
