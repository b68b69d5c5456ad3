"""What happened, in order, for whoever may know."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.conftest import Api
from tests.problems import places, the_problem
from tests.register import add_host, add_request


def ask(api: Api) -> str:
    body = {"vm_type": "small", "count": 1}
    return str(api.tenant_a.post("/v1/requests", json=body).json()["id"])


def test_who_asked_for_what_is_on_record(api: Api):
    request = ask(api)

    events = api.operator.get("/v1/events", params={"subject": request}).json()["items"]

    assert events[0]["subject_type"] == "request"
    assert events[0]["actor"] == "tenant:a"
    assert events[0]["tenant"] == "a"


def test_a_reader_follows_by_asking_for_what_came_after(api: Api):
    first = api.operator.get("/v1/events").json()
    numbers = [event["id"] for event in first["items"]]
    assert numbers == sorted(numbers)
    assert first["next"] == numbers[-1]

    nothing = api.operator.get("/v1/events", params={"after": first["next"]}).json()
    assert nothing == {"items": [], "next": first["next"]}
    ask(api)
    news = api.operator.get("/v1/events", params={"after": first["next"], "limit": 1}).json()

    assert len(news["items"]) == 1
    assert news["items"][0]["id"] > first["next"]


def test_a_tenant_reads_its_own_events(api: Api):
    request = ask(api)

    own = api.tenant_a.get("/v1/events").json()["items"]
    others = api.tenant_b.get("/v1/events", params={"subject": request}).json()["items"]

    assert {event["tenant"] for event in own} == {"a"}
    assert others == []
    the_problem(api.tenant_b.get("/v1/events", params={"tenant": "a"}), 403, "forbidden")


def test_a_subject_is_found_by_its_name_and_who_is_unknown_or_two_is_told(api: Api):
    def kinds(client: Any, subject: str, path: str = "/v1/events") -> set[str]:
        answer = client.get(path, params={"subject": subject})
        assert answer.status_code == 200, answer.text
        return {each["subject_id"] for each in answer.json()["items"]}

    def refused(client: Any, subject: str, path: str = "/v1/events") -> str:
        problem = the_problem(client.get(path, params={"subject": subject}), 422, "invalid")
        assert places(problem) == ["subject"]
        return str(problem["errors"])

    add_host(api.registry, "h1")
    first = add_request(api.registry, name="first", tenant="a")
    host = str(api.registry.hosts.get("h1").id)

    assert kinds(api.operator, "h1") == {host}
    assert kinds(api.operator, "a") == {"a"}  # a tenant's id is its name
    assert "not found" in refused(api.tenant_b, "h1")
    assert "not found" in refused(api.tenant_a, "nothing")
    assert "not found" in refused(api.tenant_b, "first")
    assert "not found" in refused(api.operator, "nothing", "/v1/audit")
    other = add_request(api.registry, name="first", tenant="b")
    said = refused(api.operator, "first")
    assert f"request {first.id} of tenant a" in said
    assert f"request {other.id} of tenant b" in said
    assert kinds(api.tenant_b, "first") == {str(other.id)}
    assert api.tenant_a.delete(f"/v1/requests/{first.id}").is_success
    assert kinds(api.operator, "first") == {str(other.id)}  # the one that is there
    assert kinds(api.tenant_a, "first") == {str(first.id)}  # the latest that was

    api.operator.patch("/v1/hosts/h1", json={"admin": "draining"})
    api.operator.patch("/v1/hosts/h1", json={"admin": "nonsense"})
    audited = api.operator.get("/v1/audit", params={"subject": "h1"}).json()["items"]
    assert [each["status"] for each in audited] == [422, 200]


@pytest.mark.parametrize("path", ["/v1/events", "/v1/audit"])
def test_an_id_in_capitals_is_the_same_id(api: Api, path: str):
    made = ask(api)

    def of(subject: str) -> list[str]:
        page = api.operator.get(path, params={"subject": subject}).json()["items"]
        return [str(each["id"]) for each in page]

    assert of(made)
    assert of(made.upper()) == of(made)


def test_a_name_that_is_an_id_elsewhere_finds_the_events_of_both(api: Api):
    request = add_request(api.registry, name="a", tenant="a")

    page = api.operator.get("/v1/events", params={"subject": "a"}).json()["items"]

    assert {each["subject_id"] for each in page} == {"a", str(request.id)}


@pytest.mark.parametrize(("subject", "status"), [("small", 200), ("a", 200), ("b", 422)])
def test_what_is_there_and_has_no_events_is_no_unknown_name(api: Api, subject: str, status: int):
    ask(api)
    query = {"subject": subject, "after": 2**40}

    answer = api.tenant_a.get("/v1/events", params=query)

    assert answer.status_code == status, answer.text
    assert status != 200 or answer.json()["items"] == []


def test_events_are_found_by_kind(api: Api):
    events = api.operator.get("/v1/events", params={"kind": "token_created"}).json()["items"]

    assert len(events) == 3


@pytest.mark.parametrize(
    ("parameter", "value"),
    [("after", "-1"), ("after", "x"), ("after", str(2**63)), ("limit", "0"), ("limit", "501")],
)
def test_a_cursor_out_of_bounds_is_named(api: Api, parameter: str, value: str):
    answer = api.operator.get("/v1/events", params={parameter: value})

    assert places(the_problem(answer, 422, "invalid")) == [parameter]
