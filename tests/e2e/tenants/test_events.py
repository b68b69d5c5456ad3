"""What happened, in order, for whoever may know."""

from __future__ import annotations

import pytest

from tests.e2e.conftest import Api
from tests.problems import places, the_problem


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
