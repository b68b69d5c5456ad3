"""An operator reads how hosts differ from the ledger, and says what needs a word."""

from __future__ import annotations

from tests.e2e.conftest import Api
from tests.problems import the_problem
from tests.register import a_report, a_stranger, add_host, add_request, place, run_vm


def test_differences_are_listed_and_those_that_ask_are_repaired(api: Api):
    host = add_host(api.registry, "h1")
    (key,) = place(api.registry, add_request(api.registry), host).assignment_ids
    run_vm(api.registry, key)
    look = a_report(a_stranger("theirs"), started_at=api.registry.now())
    api.registry.hosts.record_report(host.id, look)

    listed = api.operator.get("/v1/differences").json()["items"]

    assert {each["difference"]: each["remedy"] for each in listed} == {
        "vm_missing": "confirm",
        "stranger": "note",
    }
    missing = next(each for each in listed if each["difference"] == "vm_missing")
    body = {"difference": "vm_missing", "subject": missing["subject"]}
    answer = api.operator.post("/v1/hosts/h1/repair", json=body)
    assert answer.status_code == 202, answer.text
    assert answer.json()["on_confirmation"] == missing["on_confirmation"]
    the_problem(api.operator.post("/v1/hosts/h1/repair", json=body), 409, "conflict")
    theirs = {"difference": "stranger", "subject": "theirs"}
    the_problem(api.operator.post("/v1/hosts/h1/repair", json=theirs), 409, "conflict")


def test_differences_of_one_host_are_asked_for_by_its_name(api: Api):
    for name in ("h1", "h2"):
        host = add_host(api.registry, name)
        look = a_report(a_stranger(name), started_at=api.registry.now())
        api.registry.hosts.record_report(host.id, look)

    [one] = api.operator.get("/v1/differences", params={"host": "h2"}).json()["items"]

    assert (one["host"], one["subject"]) == ("h2", "h2")
    the_problem(api.operator.get("/v1/differences", params={"host": "h9"}), 404, "not_found")


def test_tenants_neither_see_differences_nor_repair_them(api: Api):
    add_host(api.registry, "h1")

    the_problem(api.tenant_a.get("/v1/differences"), 403, "forbidden")
    body = {"difference": "vm_missing", "subject": "x"}
    the_problem(api.tenant_a.post("/v1/hosts/h1/repair", json=body), 403, "forbidden")
