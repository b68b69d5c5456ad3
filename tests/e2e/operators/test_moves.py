"""An operator moves VMs from host to host, and their tenants see it."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from controller.rest.routers.moving.moves import MAX_HOSTS_TRIED
from controller.rounds.policy_process import PolicyProcess
from registry import Registry
from registry.errors import MoveRefusedError
from registry.moves.moves import Moves
from tests.e2e.conftest import Api
from tests.e2e.moving import a_host_of_guests, a_running_vm, arrive, begin, shrink, silence
from tests.e2e.slots import run_slot
from tests.problems import places, the_problem
from tests.register import add_host, add_request, place, run_vm

NO_ID = "00000000-0000-7000-8000-000000000000"


def hosts(api: Api, *names: str, **fields: Any) -> None:
    for name in names:
        a_host_of_guests(api.registry, name, **fields)


def vm_on(api: Api, host: str, **asked: Any) -> str:
    return a_running_vm(api.registry, api.registry.hosts.get(host), **asked)


def ask(api: Api, vm: str, **body: Any) -> httpx.Response:
    return api.operator.post("/v1/moves", json={"vm": vm, **body})


def the_move(answer: httpx.Response) -> dict[str, Any]:
    assert answer.status_code == 201, answer.text
    move: dict[str, Any] = answer.json()
    return move


# ---- asked, shown, cancelled ----------------------------------------------------------


def test_a_vm_is_moved_to_the_host_that_is_named(api: Api):
    hosts(api, "h1", "h2", "h3")
    vm = vm_on(api, "h1")

    move = the_move(ask(api, vm, host="h3", reason="a new fan"))

    assert (move["state"], move["kind"], move["vm_name"]) == ("pending", "live", "web-1")
    assert (move["from_host"], move["to_host"], move["reason"]) == ("h1", "h3", "a new fan")
    assert (move["requested_by"], move["ended_at"]) == ("operator:ops-token", None)
    shown = api.operator.get(f"/v1/vms/{vm}").json()
    assert (shown["host"], shown["moving_to"], shown["move_id"]) == ("h1", "h3", move["id"])

    step = begin(api.registry, move["id"], total=4096, left=1024, rate=512)
    going = api.operator.get(f"/v1/moves/{move['id']}").json()
    assert (going["state"], going["total_bytes"], going["remaining_bytes"]) == (
        "moving",
        4096,
        1024,
    )
    arrive(api.registry, step)

    ended = api.operator.get(f"/v1/moves/{move['id']}").json()
    assert (ended["state"], ended["downtime_ms"]) == ("moved", 150)
    shown = api.operator.get(f"/v1/vms/{vm}").json()
    assert (shown["host"], shown["moving_to"], shown["move_id"]) == ("h3", None, None)


def test_a_lost_answer_makes_no_second_move(api: Api):
    hosts(api, "h1", "h2")
    vm = vm_on(api, "h1")
    key = {"Idempotency-Key": "once"}

    first = api.operator.post("/v1/moves", json={"vm": vm}, headers=key)
    again = api.operator.post("/v1/moves", json={"vm": vm}, headers=key)

    assert (first.status_code, again.status_code) == (201, 201)
    assert first.json() == again.json()
    assert len(api.operator.get("/v1/moves").json()["items"]) == 1


def test_moves_are_listed_the_latest_first_and_found_by_what_is_known_of_them(api: Api):
    hosts(api, "h1", "h2", "h3")
    one, two = vm_on(api, "h1"), vm_on(api, "h1", name="db")
    first = the_move(ask(api, one, host="h2"))
    arrive(api.registry, begin(api.registry, first["id"]))
    second = the_move(ask(api, two, host="h3"))

    def found(**query: Any) -> list[str]:
        answer = api.operator.get("/v1/moves", params=query)
        assert answer.status_code == 200, answer.text
        return [move["id"] for move in answer.json()["items"]]

    assert found() == [second["id"], first["id"]]
    assert found(vm=one) == found(host="h2") == found(state="moved") == [first["id"]]
    assert found(host="h1") == [second["id"], first["id"]]
    assert found(open=True) == [second["id"]]
    assert found(tenant="b") == []
    page = api.operator.get("/v1/moves", params={"limit": 1}).json()
    assert [move["id"] for move in page["items"]] == [second["id"]]
    assert found(limit=1, cursor=page["next"]) == [first["id"]]


def test_a_move_that_waits_is_cancelled_and_one_under_way_is_told_to_end(api: Api):
    hosts(api, "h1", "h2")
    vm = vm_on(api, "h1")
    waits = the_move(ask(api, vm))
    cancelled = api.operator.post(f"/v1/moves/{waits['id']}/cancel")
    assert (cancelled.status_code, cancelled.json()["state"]) == (202, "cancelled")

    going = the_move(ask(api, vm))
    step = begin(api.registry, going["id"])
    body = api.operator.post(f"/v1/moves/{going['id']}/cancel").json()
    assert (body["state"], body["cancelled_by"]) == ("moving", "operator:ops-token")
    api.registry.move_steps.record_failure(step.claim, "aborted")

    ended = api.operator.get(f"/v1/moves/{going['id']}").json()
    assert (ended["state"], ended["last_error"]) == ("cancelled", "cancelled by operator:ops-token")
    again = api.operator.post(f"/v1/moves/{going['id']}/cancel")
    assert "is over" in the_problem(again, 409, "conflict")["detail"]
    the_problem(api.operator.post(f"/v1/moves/{NO_ID}/cancel"), 404, "not_found")


# ---- refused --------------------------------------------------------------------------


def test_a_refusal_names_its_obstacle(api: Api):
    hosts(api, "h1", "h2", "h3")
    vm = vm_on(api, "h1")
    shrink(api.registry, "h2", vcpus=0)
    silence(api.registry, "h3")

    def obstacle(**body: Any) -> tuple[str, str]:
        problem = the_problem(ask(api, vm, **body), 409, "move_refused")
        return problem["obstacle"], problem["detail"]

    assert obstacle(host="h1") == ("same_host", "VM web-1 cannot be moved: it is on that host")
    assert obstacle(host="h2")[0] == "no_room"
    assert obstacle(host="h3")[0] == "host_silent"
    assert obstacle(only_cold=True)[0] == "runs"
    api.tenant_a.patch(f"/v1/vms/{vm}", json={"labels": {"moves": "never"}})
    assert obstacle() == ("label", "VM web-1 cannot be moved: its tenant says moves=never")
    assert api.operator.get("/v1/moves").json()["items"] == []


def test_what_a_move_names_has_to_exist(api: Api):
    hosts(api, "h1", "h2")
    vm = vm_on(api, "h1")

    assert places(the_problem(ask(api, vm, host="h9"), 422, "invalid")) == ["#/host"]
    assert places(the_problem(ask(api, NO_ID), 422, "invalid")) == ["#/vm"]


def test_only_operators_move_and_cancel(api: Api):
    hosts(api, "h1", "h2")
    vm = vm_on(api, "h1")
    the_problem(api.tenant_a.post("/v1/moves", json={"vm": vm}), 403, "forbidden")
    move = the_move(ask(api, vm))
    the_problem(api.tenant_a.post(f"/v1/moves/{move['id']}/cancel"), 403, "forbidden")


# ---- where to, if nobody says it ------------------------------------------------------


def test_the_host_that_suits_the_vm_best_is_chosen_by_every_rule(api: Api):
    hosts(api, "h1", "h2", "h3", labels=("ssd",))
    hosts(api, "h4")  # has no such label
    a_host_of_guests(api.registry, "h5", labels=("ssd",), vcpus=0)
    add_host(api.registry, "h6", labels=("ssd",))  # libvirt's test driver
    api.operator.patch("/v1/hosts/h2", json={"admin": "draining"})
    vm = vm_on(api, "h1", requires=("ssd",))

    assert the_move(ask(api, vm))["to_host"] == "h3"


def test_a_vm_keeps_away_from_its_group_and_from_full_zones(api: Api):
    for name, zone in (("h1", "a"), ("h2", "a"), ("h3", "b"), ("h4", "b")):
        a_host_of_guests(api.registry, name, labels=(f"zone={zone}",))
    first, _ = (vm_on_spread(api, host) for host in ("h1", "h3"))

    # The other VM is in zone b: of a spread request this one stays in its own.
    assert the_move(ask(api, first))["to_host"] == "h2"


def vm_on_spread(api: Api, host: str) -> str:
    """One of two VMs of a request that is spread over zones, on this host."""
    found = api.registry.requests.list(tenant="a").items
    if not found:
        body = {"vm_type": "small", "count": 2, "name": "web", "rules": {"spread": "zone"}}
        assert api.tenant_a.post("/v1/requests", json=body).status_code == 201
        found = api.registry.requests.list(tenant="a").items
    return place_one(api.registry, found[0], host)


def place_one(registry: Registry, request: Any, host: str) -> str:

    [key] = place(registry, request, registry.hosts.get(host)).assignment_ids
    run_vm(registry, key)
    vms = registry.vms.list(limit=500).items
    return next(str(vm.id) for vm in vms if vm.assignment_id == key)


def test_where_no_host_takes_it_the_refusal_says_what_it_would_need(api: Api):
    hosts(api, "h1", "h2", "h3")
    vm = vm_on(api, "h1")
    shrink(api.registry, "h2", vcpus=0)
    api.operator.patch("/v1/hosts/h3", json={"admin": "draining"})

    problem = the_problem(ask(api, vm), 409, "move_refused")

    assert problem["obstacle"] == "nowhere"
    assert problem["detail"] == (
        "VM web-1 cannot be moved: none of 2 other hosts takes it; it would need room on 1 host "
        "taking no VMs now: closed by an operator, or not answering, or 1 host short of vcpus "
        "alone, the nearest by 1"
    )


def test_a_group_that_is_elsewhere_complete_is_not_torn_apart(api: Api):
    hosts(api, "h1", "h2")
    rules = {"rules": {"affinity": {"group": "pair"}}, "vm_type": "small", "count": 1}
    for name in ("one", "two"):
        assert api.tenant_a.post("/v1/requests", json={"name": name, **rules}).status_code == 201
    one, _ = (
        place_one(api.registry, each, "h1") for each in api.registry.requests.list(tenant="a").items
    )

    problem = the_problem(ask(api, one), 409, "move_refused")

    assert problem["obstacle"] == "nowhere"
    assert "the other VMs of its group pair are on its host" in problem["detail"]


def test_a_lone_host_says_so(api: Api):
    hosts(api, "h1")
    vm = vm_on(api, "h1")

    problem = the_problem(ask(api, vm), 409, "move_refused")

    assert "there is no other host of its kind" in problem["detail"]


def test_a_host_that_refuses_after_all_is_followed_by_the_next_best(
    api: Api, monkeypatch: pytest.MonkeyPatch
):
    hosts(api, *(f"h{number}" for number in range(1, 8)))
    vm = vm_on(api, "h1")
    requested: list[str] = []
    really = Moves.create
    willing = ["h4"]

    def full_by_now(self: Moves, vm_id: Any, host: str, **how: Any) -> Any:
        requested.append(host)
        if host not in willing:
            raise MoveRefusedError("web-1", "no_room", f"host {host} is full by now")
        return really(self, vm_id, host, **how)

    monkeypatch.setattr(Moves, "create", full_by_now)
    assert the_move(ask(api, vm))["to_host"] == "h4"
    assert requested == ["h2", "h3", "h4"]

    [move] = api.operator.get("/v1/moves").json()["items"]
    api.operator.post(f"/v1/moves/{move['id']}/cancel")
    willing.clear()
    requested.clear()
    problem = the_problem(ask(api, vm), 409, "move_refused")
    assert len(requested) == len(set(requested)) == MAX_HOSTS_TRIED
    assert problem["detail"].endswith(f"host {requested[-1]} is full by now")


# ---- what tenants see -----------------------------------------------------------------


def test_a_tenant_sees_its_own_vms_move_by_its_own_names_of_hosts(api: Api):
    hosts(api, "h1", "h2")
    vm = vm_on(api, "h1")
    move = the_move(ask(api, vm, reason="h1 gets a new fan"))
    h1, h2 = api.alias("h1"), api.alias("h2")

    [seen] = api.tenant_a.get("/v1/moves", params={"host": h2}).json()["items"]
    assert (seen["from_host"], seen["to_host"]) == (h1, h2)
    assert (seen["requested_by"], seen["reason"]) == ("operator", f"{h1} gets a new fan")
    assert api.tenant_a.get(f"/v1/vms/{vm}").json()["moving_to"] == h2
    assert api.tenant_b.get("/v1/moves").json()["items"] == []
    the_problem(api.tenant_b.get(f"/v1/moves/{move['id']}"), 404, "not_found")

    api.operator.post(f"/v1/moves/{move['id']}/cancel")
    ended = api.tenant_a.get(f"/v1/moves/{move['id']}").json()
    assert (ended["cancelled_by"], ended["last_error"]) == ("operator", "cancelled by an operator")
    events = api.tenant_a.get("/v1/events", params={"subject": move["id"]}).json()["items"]
    assert [(each["data"]["from"], each["data"]["to"]) for each in events] == [(h1, h2)] * 2
    assert events[-1]["reason"] == "cancelled by an operator"
    assert events[-1]["actor"] == "operator"


def test_an_explanation_tells_the_last_move(api: Api, decider: PolicyProcess):
    hosts(api, "h1")
    add_request(api.registry, name="web")
    run_slot(api.registry, decider)
    [placed] = api.registry.vms.list().items
    assert placed.assignment_id is not None
    run_vm(api.registry, placed.assignment_id)
    vm = str(placed.id)
    hosts(api, "h2")

    def explained(client: httpx.Client = api.operator) -> dict[str, Any]:
        found: dict[str, Any] = client.get(f"/v1/vms/{vm}/explanation").json()
        return found

    assert explained()["last_move"] is None
    move = the_move(ask(api, vm, reason="a new fan"))
    assert "it is moving from h1 to h2 (a new fan)" in explained()["message"]
    arrive(api.registry, begin(api.registry, move["id"]))

    explanation = explained()
    assert explanation["moved_here"]["id"] == move["id"]
    assert explanation["host"] == "h2"
    assert explanation["message"].startswith("round 1 placed it on another host; ")
    assert "it moved from h1 to h2 (a new fan) at " in explanation["message"]
    assert explanation["message"].endswith("while its guest ran; its guest stood still for 0.15 s")
    seen = explained(api.tenant_a)
    assert seen["last_move"]["from_host"] == api.alias("h1")
    assert " h1 " not in seen["message"]
