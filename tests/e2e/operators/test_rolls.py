"""Operators let commands go over hosts: begin, drive, look, resume and cancel."""

from __future__ import annotations

from typing import Any

from tests.e2e.conftest import Api
from tests.e2e.moving import a_host_of_guests, a_running_vm, silence

COMMAND = {"command": "./update", "driver": "fuga on desk"}


def begin(api: Api, *hosts: str, **body: Any) -> Any:
    body = {"hosts": list(hosts) or ["all"]} | COMMAND | body
    return api.operator.post("/v1/rolls", json=body)


def step(api: Api, claim: Any, **told: Any) -> Any:
    return api.operator.put(f"/v1/rolls/{claim['roll']['id']}/drivers/{claim['token']}", json=told)


def audited(api: Api) -> int:
    return len(api.operator.get("/v1/audit", params={"limit": 500}).json()["items"])


def test_a_roll_is_begun_driven_and_resumed(api: Api):
    for host in ("h1", "h2", "h3"):
        a_host_of_guests(api.registry, host)

    answer = begin(api, at_once=2, skipped=["h3"])

    assert answer.status_code == 201, answer.text
    claim = answer.json()
    roll = claim["roll"]
    assert (roll["state"], roll["hosts"], roll["checked"]) == ("running", 2, 1)
    before = audited(api)
    assert [each["phase"] for each in step(api, claim).json()["hosts"]] == ["emptying"] * 2
    assert [each["phase"] for each in step(api, claim).json()["hosts"]] == ["empty"] * 2
    at_work = step(api, claim, begun=["h1", "h2"]).json()
    assert {each["phase"] for each in at_work["hosts"]} == {"running"}
    assert api.operator.get("/v1/hosts/h1").json()["admin"] == "maintenance"
    ended = [{"host": "h1", "error": "exit status 3"}, {"host": "h2"}]
    assert step(api, claim, ended=ended).json()["roll"]["state"] == "running"
    stopped = step(api, claim, leave=True).json()["roll"]
    assert (stopped["state"], stopped["last_error"]) == ("stopped", "host h1: exit status 3")
    assert audited(api) == before  # what a driver does is in the events

    path = f"/v1/rolls/{roll['id']}"
    again = api.operator.post(f"{path}/resume", json=COMMAND | {"skipped": ["h1"]})
    assert again.status_code == 202, again.text
    hosts = api.operator.get(f"{path}/hosts").json()["items"]
    assert {each["host"]: each["phase"] for each in hosts} == {"h1": "skipped", "h2": "returning"}
    assert step(api, claim).status_code == 409
    assert api.operator.post(f"{path}/cancel").status_code == 202
    over = step(api, again.json(), leave=True)
    assert over.json()["roll"]["state"] == "cancelled"
    assert api.operator.get("/v1/rolls", params={"state": "running"}).json()["items"] == []
    assert api.operator.get(path).json()["cancelled_by"] == "operator:ops-token"


def test_a_roll_that_cannot_work_is_refused_before_it_begins(api: Api):
    host = a_host_of_guests(api.registry, "h1")
    a_host_of_guests(api.registry, "h2", memory_mib=1024)
    vm = a_running_vm(api.registry, host)

    refused = begin(api, "h1")

    assert refused.status_code == 409
    detail = refused.json()["detail"]
    assert "host h1 cannot be emptied: 1 VMs have no place elsewhere" in detail
    assert vm in detail
    assert api.operator.get("/v1/hosts/h1").json()["admin"] == "active"
    assert begin(api, "h2").status_code == 201
    a_host_of_guests(api.registry, "h3")
    assert begin(api, "h1", at_once=1).status_code == 201


def test_hosts_that_are_away_are_to_be_left_out(api: Api):
    for host in ("h1", "h2"):
        a_host_of_guests(api.registry, host)
    silence(api.registry, "h1")

    refused = begin(api)

    assert refused.status_code == 409
    assert "h1 is unreachable" in refused.json()["detail"]
    assert begin(api, skipped=["h1"]).status_code == 201
    assert begin(api, "h1", skipped=["h1"]).status_code == 422


def test_what_no_roll_can_be_is_refused_with_its_place(api: Api):
    a_host_of_guests(api.registry, "h1")

    for body in (
        {"hosts": ["nowhere"]},
        {"hosts": ["label=nothing"]},
        {"hosts": ["rack=3"]},
        {"hosts": []},
        {"at_once": 0},
        {"command": ""},
        {"command": "two\nlines"},
        {"up_within_s": 0},
    ):
        assert begin(api, **body).status_code == 422, body
    assert api.operator.get("/v1/rolls").json()["items"] == []


def test_rolls_are_for_operators(api: Api):
    a_host_of_guests(api.registry, "h1")
    claim = begin(api).json()
    roll = f"/v1/rolls/{claim['roll']['id']}"

    for method, path, body in (
        ("POST", "/v1/rolls", {"hosts": ["all"]} | COMMAND),
        ("GET", "/v1/rolls", None),
        ("GET", roll, None),
        ("GET", f"{roll}/hosts", None),
        ("POST", f"{roll}/resume", COMMAND),
        ("PUT", f"{roll}/drivers/{claim['token']}", {}),
        ("POST", f"{roll}/cancel", None),
    ):
        assert api.tenant_a.request(method, path, json=body).status_code == 403, (method, path)
