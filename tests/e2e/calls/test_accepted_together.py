"""Many ask at the same time, each is answered as if it were alone."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx

from tests.e2e.conftest import Api, a_token
from tests.problems import the_problem
from tests.register import ACTOR


def asked_at_once(
    api: Api, secret: str, calls: list[tuple[dict[str, Any], str | None]]
) -> list[httpx.Response]:
    """Send all calls before any is answered."""

    async def ask() -> list[httpx.Response]:
        transport = httpx.ASGITransport(app=api.app)
        headers = {"Authorization": f"Bearer {secret}"}
        async with httpx.AsyncClient(
            transport=transport, base_url="http://fuga", headers=headers, timeout=None
        ) as client:
            return await asyncio.gather(
                *(
                    client.post(
                        "/v1/requests",
                        json=body,
                        headers={} if key is None else {"Idempotency-Key": key},
                    )
                    for body, key in calls
                )
            )

    return asyncio.run(ask())


def test_each_of_many_at_once_has_its_own_answer_and_its_own_row_in_the_audit(api: Api):
    secret = a_token(api.registry, "a", "many")
    body = {"vm_type": "small", "count": 1}
    calls: list[tuple[dict[str, Any], str | None]] = [(body, f"k{n}") for n in range(8)]
    calls += [(body, None), (body | {"name": "web"}, None), (body | {"vm_type": "none"}, "k9")]
    calls += [(body | {"network": "none"}, None), (body | {"count": 40}, "k10")]

    answers = asked_at_once(api, secret, calls)

    assert [answer.status_code for answer in answers] == [201] * 10 + [422, 422, 201]
    assert "none" in the_problem(answers[10], 422, "invalid")["detail"]
    made = {answer.json()["id"]: answer.json() for answer in answers if answer.is_success}
    listed = api.tenant_a.get("/v1/requests").json()["items"]
    assert {each["id"]: each for each in listed} == made
    api.app.state.refusals.flush()
    audit = api.operator.get("/v1/audit", params={"token": "many"}).json()["items"]
    assert {entry["subject"] for entry in audit if entry["status"] == 201} == set(made)
    assert [entry["refusals"] for entry in audit if entry["status"] == 422] == [
        {"422 POST /v1/requests": 2}
    ]
    assert len(audit) == len(calls) - 1
    events = api.operator.get("/v1/events", params={"kind": "request_created"}).json()["items"]
    assert {event["subject_id"] for event in events} == set(made)


def test_one_key_many_times_at_once_makes_one_request(api: Api):
    secret = a_token(api.registry, "a", "many")
    body = {"vm_type": "small", "count": 1}

    answers = asked_at_once(api, secret, [(body, "k"), (body, "k"), (body, "k"), (body, "other")])

    assert [answer.status_code for answer in answers] == [201] * 4
    assert len({answer.text for answer in answers[:3]}) == 1
    assert sum("idempotency-replayed" in answer.headers for answer in answers) == 2
    assert len(api.tenant_a.get("/v1/requests").json()["items"]) == 2


def test_many_at_once_get_no_more_than_the_quota(api: Api):
    secret = a_token(api.registry, "a", "many")
    api.registry.quotas.set("a", {"vms": 5}, actor=ACTOR)
    body = {"vm_type": "small", "count": 2}

    answers = asked_at_once(api, secret, [(body, f"k{n}") for n in range(4)])

    assert sorted(answer.status_code for answer in answers) == [201, 201, 403, 403]
    refused = next(answer for answer in answers if answer.status_code == 403)
    the_problem(refused, 403, "quota_exceeded")
    assert api.registry.quotas.get("a").limits[0].requested == 4
