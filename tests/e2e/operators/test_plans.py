"""Operators ask for plans of moves, read, approve and cancel them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any
from uuid import UUID

import pytest

from controller.plans.plan_inputs import PlanInputs, decide_plan
from controller.rounds.running_state import to_running
from placement.rebalancing.model import RebalanceLimits
from registry.db.ids import uuid7
from registry.moves import PlannedMove
from tests.e2e.conftest import Api
from tests.register import add_host, add_request, place


def ask(api: Api, **body: Any) -> Any:
    return api.operator.post("/v1/plans", json=body)


def test_a_plan_is_asked_for_listed_and_cancelled(api: Api):
    add_host(api.registry, "h1")

    requested = ask(api, kind="evacuate", hosts=["h1", "h1"])

    assert requested.status_code == 202, requested.text
    plan = requested.json()
    assert (plan["kind"], plan["state"], plan["moves"]) == ("evacuate", "pending", 0)
    assert plan["arguments"] == {"hosts": ["h1"]}
    assert [each["id"] for each in api.operator.get("/v1/plans").json()["items"]] == [plan["id"]]
    assert api.operator.get("/v1/plans", params={"state": "done"}).json()["items"] == []
    assert api.operator.get(f"/v1/plans/{plan['id']}/moves").json()["items"] == []

    cancelled = api.operator.post(f"/v1/plans/{plan['id']}/cancel")

    assert (cancelled.status_code, cancelled.json()["state"]) == (202, "cancelled")
    assert api.operator.post(f"/v1/plans/{plan['id']}/cancel").status_code == 409


def test_a_plan_that_is_not_decided_is_neither_approved_nor_replayed(api: Api):
    plan = ask(api, kind="balance").json()

    approved = api.operator.post(f"/v1/plans/{plan['id']}/approve")
    replayed = api.operator.post(f"/v1/plans/{plan['id']}/replay")

    assert (approved.status_code, replayed.status_code) == (409, 409)
    assert "is not decided yet" in approved.json()["detail"]
    assert "not decided" in replayed.json()["detail"]


def propose(
    api: Api,
    plan: Any,
    decided: list[PlannedMove],
    inputs: bytes = b"inputs",
    document: Mapping[str, Any] = MappingProxyType({}),
    before: Mapping[str, Any] = MappingProxyType({}),
    after: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    api.registry.plans.propose(
        UUID(plan["id"]),
        decided,
        before=dict(before),
        after=dict(after),
        stays=[],
        cut=False,
        inputs=inputs,
        document=dict(document),
        actor="control",
    )


def test_a_plan_says_in_one_sentence_what_becomes_better_and_what_worse(api: Api):
    plan = ask(api, kind="balance").json()
    assert plan["effect"] is None
    propose(
        api,
        plan,
        [],
        before={"potential": 1, "moved_gib": 0},
        after={"potential": 2, "moved_gib": 3},
    )

    shown = api.operator.get(f"/v1/plans/{plan['id']}").json()

    assert shown["effect"] == (
        "Better: the load of hosts is nearer to the pool's. Worse: nothing. Cost: 3.0 GiB to move."
    )
    assert api.operator.get("/v1/plans").json()["items"] == [shown]


@pytest.mark.parametrize("kind", ["pack", "repair", "mend"])  # the last: before revision 0066
def test_a_plan_is_replayed_in_a_process_of_its_own_and_damaged_inputs_are_told(
    api: Api, kind: str
):
    add_host(api.registry, "h1")
    running, names = to_running(api.registry.plans.view_running(rest_s=0))
    inputs = PlanInputs(
        kind=kind, arguments={}, running=running, names=names, limits=RebalanceLimits(), seed=1
    ).encode()
    decided, damaged = ask(api, kind="pack").json(), ask(api, kind="repair").json()
    propose(api, decided, [], inputs, decide_plan(inputs))
    propose(api, damaged, [])

    replayed = api.operator.post(f"/v1/plans/{decided['id']}/replay")
    refused = api.operator.post(f"/v1/plans/{damaged['id']}/replay")

    assert (replayed.status_code, replayed.json()["identical"]) == (200, True)
    assert refused.status_code == 409
    assert "not decided again" in refused.json()["detail"]


def test_an_approval_may_be_repeated_with_its_key(api: Api):
    here, there = (add_host(api.registry, name) for name in ("h1", "h2"))
    request = add_request(api.registry, 1)
    place(api.registry, request, here, 1)
    [vm] = api.registry.vms.list(request_id=request.id).items
    move = PlannedMove(
        vm_id=vm.id, from_host_id=here.id, to_host_id=there.id, wave=0, why="mends", transfer_mib=1
    )
    plan = ask(api, kind="repair").json()
    propose(api, plan, [move])
    key = {"Idempotency-Key": "once"}

    first = api.operator.post(f"/v1/plans/{plan['id']}/approve", headers=key)
    again = api.operator.post(f"/v1/plans/{plan['id']}/approve", headers=key)

    assert (first.status_code, first.json()["state"]) == (202, "approved")
    assert (again.status_code, again.json()) == (202, first.json())
    by_another = api.operator.post(f"/v1/plans/{plan['id']}/approve")
    assert by_another.status_code == 409
    assert "is approved already by" in by_another.json()["detail"]


def test_a_plan_without_a_useful_move_is_over_as_soon_as_it_is_decided(api: Api):
    plan = ask(api, kind="repair").json()
    propose(api, plan, [])

    approved = api.operator.post(f"/v1/plans/{plan['id']}/approve")

    assert api.operator.get(f"/v1/plans/{plan['id']}").json()["state"] == "done"
    assert approved.status_code == 409
    assert "it has no useful move" in approved.json()["detail"]


def test_room_is_asked_for_a_request_that_waits(api: Api):
    request = str(add_request(api.registry).id)

    requested = ask(api, kind="room", request=request)

    assert (requested.status_code, requested.json()["arguments"]) == (202, {"request": request})


def test_what_no_plan_can_be_is_refused_with_its_place(api: Api):
    add_host(api.registry, "h1")

    for body, status in (
        ({"kind": "evacuate", "hosts": ["nowhere"]}, 422),
        ({"kind": "evacuate"}, 422),
        ({"kind": "balance", "hosts": ["h1"]}, 422),
        ({"kind": "everything"}, 422),
        ({"kind": "balance", "budget": 1}, 422),
        ({"kind": "room"}, 422),
        ({"kind": "room", "request": str(uuid7())}, 422),
        ({"kind": "repair", "request": str(uuid7())}, 422),
    ):
        assert ask(api, **body).status_code == status, body
    assert api.operator.get("/v1/plans").json()["items"] == []


def test_plans_are_for_operators(api: Api):
    plan = ask(api, kind="balance").json()["id"]

    for method, path in (
        ("POST", "/v1/plans"),
        ("GET", "/v1/plans"),
        ("GET", f"/v1/plans/{plan}"),
        ("GET", f"/v1/plans/{plan}/moves"),
        ("POST", f"/v1/plans/{plan}/approve"),
        ("POST", f"/v1/plans/{plan}/cancel"),
        ("POST", f"/v1/plans/{plan}/replay"),
    ):
        body = {"kind": "balance"} if path == "/v1/plans" and method == "POST" else None
        assert api.tenant_a.request(method, path, json=body).status_code == 403, (method, path)
