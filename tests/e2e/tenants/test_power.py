"""A tenant stops, starts and reboots its VMs."""

from __future__ import annotations

import uuid
from typing import Any

import httpx
import pytest

from registry import PowerEvent
from tests.e2e.conftest import Api
from tests.problems import places, the_problem
from tests.register import add_host, add_request, place, run_vm


def running_vms(api: Api, count: int = 1) -> list[dict[str, Any]]:
    """Ask for VMs of tenant a named web, and let them run."""
    request = add_request(api.registry, count, name="web")
    host = add_host(api.registry)
    for assignment_id in place(api.registry, request, host, count).assignment_ids:
        run_vm(api.registry, assignment_id)
    items: list[dict[str, Any]] = api.tenant_a.get("/v1/vms").json()["items"]
    return items


def switched(api: Api, vm: dict[str, Any], event: PowerEvent) -> None:
    """Do what a worker does when all goes well."""
    step = api.registry.power.claim(uuid.UUID(vm["id"]), "w1", 60)
    assert step is not None
    api.registry.power.advance(step.claim, event)


def post(client: httpx.Client, path: str, **body: Any) -> httpx.Response:
    return client.post(f"/v1/{path}", json=body)


def test_a_vm_is_stopped_and_keeps_its_host(api: Api):
    [vm] = running_vms(api)

    requested = post(api.tenant_a, f"vms/{vm['id']}/stop", timeout_s=30)
    switched(api, vm, PowerEvent.SEEN_OFF)

    assert requested.status_code == 202
    assert requested.json()["desired"] == "stopped"
    power = requested.json()["power"]
    assert (power["state"], power["timeout_s"], power["force_at"]) == ("stopping", 30, None)
    assert (power["requested_by"], power["waits_for"]) == ("tenant:a", None)
    stopped = api.tenant_a.get(f"/v1/vms/{vm['id']}").json()
    assert (stopped["observed"], stopped["host"], stopped["power"]) == ("stopped", vm["host"], None)
    request = api.tenant_a.get(f"/v1/requests/{vm['request_id']}").json()
    assert (request["state"], request["vms_placed"], request["vms_running"]) == ("placed", 1, 0)
    kinds = [
        (event["kind"], event["from_state"], event["to_state"])
        for event in api.tenant_a.get("/v1/events", params={"subject": vm["id"]}).json()["items"]
    ]
    assert kinds[-4:] == [
        ("vm_desired", "running", "stopped"),
        ("vm_power", "idle", "stopping"),
        ("vm_power", "stopping", "idle"),
        ("vm_observed", "running", "stopped"),
    ]


def test_a_stopped_vm_is_started_and_not_rebooted(api: Api):
    [vm] = running_vms(api)
    post(api.tenant_a, f"vms/{vm['id']}/stop")
    switched(api, vm, PowerEvent.SEEN_OFF)

    refused = post(api.tenant_a, f"vms/{vm['id']}/reboot")
    started = api.tenant_a.post(f"/v1/vms/{vm['id']}/start")  # it needs no body

    assert the_problem(refused, 409, "conflict")["detail"].endswith("it is stopped: start it")
    assert started.status_code == 202
    assert started.json()["desired"] == "running"
    assert started.json()["power"]["state"] == "starting"


def test_patience_is_a_number_of_seconds_or_none_at_all(api: Api):
    [vm] = running_vms(api)
    path = f"vms/{vm['id']}/stop"

    both = post(api.tenant_a, path, timeout_s=5, force=True)
    never = post(api.tenant_a, path, timeout_s=-1)
    default = post(api.tenant_a, path)
    forced = post(api.tenant_a, path, force=True)

    assert places(the_problem(both, 422, "invalid")) == ["#/timeout_s"]
    assert places(the_problem(never, 422, "invalid")) == ["#/timeout_s"]
    assert default.json()["power"]["timeout_s"] == 60
    assert forced.json()["power"]["timeout_s"] == 0


def test_a_whole_request_is_stopped_started_and_rebooted(api: Api):
    vms = running_vms(api, 2)
    path = f"requests/{vms[0]['request_id']}"

    def powers() -> list[str | None]:
        items = api.tenant_a.get("/v1/vms").json()["items"]
        return [item["power"] and item["power"]["state"] for item in items]

    stopped = post(api.tenant_a, f"{path}/stop")
    after_stop = powers()
    post(api.tenant_a, f"{path}/start")
    after_start = powers()
    post(api.tenant_a, f"{path}/reboot", timeout_s=5)

    assert stopped.status_code == 202
    assert stopped.json()["name"] == "web"
    assert after_stop == ["stopping", "stopping"]
    assert after_start == ["starting", "starting"]
    assert powers() == ["rebooting", "rebooting"]
    api.tenant_a.delete(f"/v1/{path}")
    the_problem(post(api.tenant_a, "vms/" + vms[0]["id"] + "/start"), 409, "conflict")


def test_a_request_of_stopped_vms_is_not_rebooted_and_says_so(api: Api):
    vms = running_vms(api, 2)
    path = f"requests/{vms[0]['request_id']}"
    post(api.tenant_a, f"{path}/stop")

    refused = the_problem(post(api.tenant_a, f"{path}/reboot"), 409, "conflict")

    assert "no VM of this request can be rebooted" in refused["detail"]
    assert "start it" in refused["detail"]


def test_a_reboot_that_is_sent_twice_with_its_key_is_one(api: Api):
    [vm] = running_vms(api)
    key = {"Idempotency-Key": "again"}

    first = api.tenant_a.post(f"/v1/vms/{vm['id']}/reboot", json={}, headers=key)
    switched(api, vm, PowerEvent.RESET)
    second = api.tenant_a.post(f"/v1/vms/{vm['id']}/reboot", json={}, headers=key)

    assert second.json() == first.json()
    assert api.tenant_a.get(f"/v1/vms/{vm['id']}").json()["power"] is None


@pytest.mark.parametrize("verb", ["stop", "start", "reboot"])
def test_another_tenants_vms_are_not_switched(api: Api, verb: str):
    [vm] = running_vms(api)

    for path in (f"vms/{vm['id']}", f"requests/{vm['request_id']}"):
        the_problem(post(api.tenant_b, f"{path}/{verb}"), 404, "not_found")
        the_problem(post(api.stranger, f"{path}/{verb}"), 401, "unauthorized")
    assert api.tenant_a.get(f"/v1/vms/{vm['id']}").json() == vm
