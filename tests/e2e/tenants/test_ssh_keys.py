"""A tenant says who may log in to its VMs."""

from __future__ import annotations

import base64
import hashlib
import uuid

import pytest

from tests.builders import a_public_key
from tests.e2e.conftest import Api
from tests.problems import places, the_problem

KEY = a_public_key()


def add(client, **changes):
    return client.post("/v1/ssh-keys", json={"name": "laptop", "public_key": KEY, **changes})


def test_a_tenant_adds_lists_and_removes_a_key(api: Api):
    made = add(api.tenant_a)

    assert made.status_code == 201
    key = made.json()
    assert (key["tenant"], key["public_key"]) == ("a", KEY)
    assert key["fingerprint"].startswith("SHA256:")
    assert api.tenant_a.get("/v1/ssh-keys").json() == {"items": [key], "next": None}
    assert api.tenant_a.delete(f"/v1/ssh-keys/{key['id']}").json() == key
    assert api.tenant_a.get("/v1/ssh-keys").json()["items"] == []
    the_problem(api.tenant_a.delete(f"/v1/ssh-keys/{key['id']}"), 404, "not_found")


def test_another_tenants_key_does_not_exist(api: Api):
    key = add(api.tenant_a).json()

    assert api.tenant_b.get("/v1/ssh-keys").json()["items"] == []
    the_problem(api.tenant_b.delete(f"/v1/ssh-keys/{key['id']}"), 404, "not_found")
    the_problem(api.tenant_b.delete(f"/v1/ssh-keys/{uuid.uuid4()}"), 404, "not_found")
    the_problem(api.tenant_b.get("/v1/ssh-keys", params={"tenant": "a"}), 403, "forbidden")
    the_problem(add(api.tenant_b, tenant="a"), 403, "forbidden")


def test_an_operator_says_whose_key_it_is(api: Api):
    assert places(the_problem(add(api.operator), 422, "invalid")) == ["#/tenant"]
    assert places(the_problem(add(api.operator, tenant="nobody"), 422, "invalid")) == ["#/tenant"]
    assert add(api.operator, tenant="b").json()["tenant"] == "b"
    the_problem(add(api.operator, tenant="b"), 409, "duplicate")


def test_a_private_key_is_refused_and_not_quoted(api: Api):
    secret = "-----BEGIN OPENSSH PRIVATE KEY-----\nc2VjcmV0\n"

    answers = [
        add(api.tenant_a, public_key=secret),
        add(api.tenant_a, public_key=secret * 100),
        api.tenant_a.post(
            "/v1/requests", json={"vm_type": "small", "count": 1, "ssh_keys": [secret]}
        ),
    ]

    for answer in answers:
        the_problem(answer, 422, "invalid")
        assert "c2VjcmV0" not in answer.text
    assert places(the_problem(answers[0], 422, "invalid")) == ["#/public_key"]
    assert places(the_problem(answers[2], 422, "invalid")) == ["#/ssh_keys/0"]


def test_user_data_goes_in_and_only_its_size_and_hash_come_out(api: Api):
    secret = b"password: hunter2\n"
    body = {
        "vm_type": "small",
        "count": 1,
        "name": "web",
        "ssh_keys": [KEY],
        "user_data": base64.b64encode(secret).decode(),
    }

    answer = api.tenant_a.post("/v1/requests", json=body, headers={"Idempotency-Key": "k"})
    again = api.tenant_a.post("/v1/requests", json=body, headers={"Idempotency-Key": "k"})
    shown = api.tenant_a.get(f"/v1/requests/{answer.json()['id']}")
    events = api.operator.get("/v1/events")

    reported = {"bytes": len(secret), "sha256": hashlib.sha256(secret).hexdigest()}
    assert answer.json()["user_data"] == reported
    assert answer.json()["ssh_keys"] == [add(api.tenant_a).json()["fingerprint"]]
    assert again.json() == answer.json()
    for each in (answer, again, shown, events):
        assert "hunter2" not in each.text
        assert body["user_data"] not in each.text


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"packages: [nginx]\n", "has none of the first lines that it knows"),
        (b"#cloud-config\n- a\n", "has no settings at its first level"),
        (b"#cloud-config\nruncmd: [ls]\n", None),
    ],
)
def test_user_data_that_cloud_init_will_ignore_comes_with_a_warning(
    api: Api, content: bytes, why: str | None
) -> None:
    body = {"vm_type": "small", "count": 1, "user_data": base64.b64encode(content).decode()}

    made = api.tenant_a.post("/v1/requests", json=body, headers={"Idempotency-Key": "k"})
    again = api.tenant_a.post("/v1/requests", json=body, headers={"Idempotency-Key": "k"})
    shown = api.tenant_a.get(f"/v1/requests/{made.json()['id']}")

    for answer in (made, again, shown):
        warnings = answer.json()["warnings"]
        assert len(warnings) == (why is not None)
        assert all(
            each.startswith(f"cloud-init will ignore the user data, which {why}")
            for each in warnings
        )


def test_faulty_user_data_is_not_quoted_either(api: Api):
    for user_data in ("hunter2 is no base64", base64.b64encode(b"hunter2" * 10_000).decode()):
        answer = api.tenant_a.post(
            "/v1/requests", json={"vm_type": "small", "count": 1, "user_data": user_data}
        )

        problem = the_problem(answer, 422, "invalid")
        assert places(problem) == ["#/user_data"]
        assert user_data[:20] not in answer.text
        assert problem["errors"][0]["found"] == f"{len(user_data)} characters"


def test_user_data_that_is_too_long_once_decoded_is_refused_by_its_size(api: Api):
    long = base64.b64encode(b"x" * 65_537).decode()
    body = {"vm_type": "small", "count": 1, "user_data": long}

    problem = the_problem(api.tenant_a.post("/v1/requests", json=body), 422, "invalid")

    assert problem["errors"][0]["found"] == "65537 bytes"
