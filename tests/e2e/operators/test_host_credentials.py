"""An operator says which credential opens a host, and which key it must show."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.e2e.conftest import Api
from tests.problems import places, the_problem

TLS, SSH = "qemu+tls://h1.example/system", "qemu+ssh://fuga@h1.example:2222/system"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ5NkCYpr6LM7C6Bjvn8Kdbj1oKf2sNTCNKXGbZnqmZv"
OTHER = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIF2Rv9b0bUFQmsiyRUsoFVXDnN6q8sL2h2bN0gXkQ0yW"


def register(client: httpx.Client, uri: str, **fields: Any) -> httpx.Response:
    return client.post("/v1/hosts", json={"name": "h1", "uri": uri, **fields})


def test_a_host_is_registered_with_the_name_of_what_opens_it_and_changed_later(api: Api):
    made = register(api.operator, SSH, credential="site", ssh_host_keys=[f"{KEY} root@h1"])

    assert made.status_code == 202
    assert made.json()["uri"] == SSH
    assert (made.json()["credential"], made.json()["ssh_host_keys"]) == ("site", [KEY])

    changed = api.operator.patch(
        "/v1/hosts/h1", json={"credential": "site-2", "ssh_host_keys": [OTHER, KEY]}
    ).json()
    assert (changed["credential"], changed["ssh_host_keys"]) == ("site-2", [OTHER, KEY])

    kept = api.operator.patch("/v1/hosts/h1", json={"labels": ["ssd"]}).json()
    assert (kept["credential"], kept["ssh_host_keys"]) == ("site-2", [OTHER, KEY])

    no_key = api.operator.patch("/v1/hosts/h1", json={"ssh_host_keys": []}).json()
    assert no_key["ssh_host_keys"] == []
    events = api.operator.get("/v1/events", params={"kind": "host_updated"}).json()["items"]
    assert events[0]["data"]["credential"] == "site-2"


def test_tls_needs_no_credential_and_can_be_given_and_relieved_of_one(api: Api):
    assert register(api.operator, TLS).json()["credential"] is None

    given = api.operator.patch("/v1/hosts/h1", json={"credential": "site"}).json()
    taken = api.operator.patch("/v1/hosts/h1", json={"credential": None}).json()

    assert (given["credential"], taken["credential"]) == ("site", None)


@pytest.mark.parametrize(
    ("uri", "fields", "place"),
    [
        (SSH, {}, "#/credential"),
        (SSH, {"ssh_host_keys": [KEY]}, "#/credential"),
        (TLS, {"credential": "../../etc"}, "#/credential"),
        (TLS, {"credential": ".."}, "#/credential"),
        (TLS, {"credential": ""}, "#/credential"),
        (TLS, {"credential": "a/b"}, "#/credential"),
        (TLS, {"credential": "site", "ssh_host_keys": [KEY]}, "#/ssh_host_keys"),
        (SSH, {"credential": "site", "ssh_host_keys": ["* " + KEY]}, "#/ssh_host_keys/0"),
        (SSH, {"credential": "site", "ssh_host_keys": [f"{KEY}\n* {KEY}"]}, "#/ssh_host_keys/0"),
        (SSH, {"credential": "site", "ssh_host_keys": [KEY, "SHA256:abc"]}, "#/ssh_host_keys/1"),
        (SSH, {"credential": "site", "ssh_host_keys": [KEY] * 9}, "#/ssh_host_keys"),
    ],
)
def test_what_opens_no_host_is_refused_where_it_stands(
    api: Api, uri: str, fields: dict[str, Any], place: str
):
    problem = the_problem(register(api.operator, uri, **fields), 422, "invalid")

    assert places(problem) == [place]
    assert api.operator.get("/v1/hosts").json()["items"] == []


@pytest.mark.parametrize("field", ["credential", "ssh_host_keys"])
def test_a_private_key_that_was_pasted_is_not_quoted(api: Api, field: str):
    pasted = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAABG5vbmU\n-----END"
    fields = {"credential": "site"} | {field: [pasted] if field == "ssh_host_keys" else pasted}

    refused = register(api.operator, SSH, **fields)

    the_problem(refused, 422, "invalid")
    assert "b3BlbnNza" not in refused.text


def test_ssh_keeps_its_credential(api: Api):
    register(api.operator, SSH, credential="site", ssh_host_keys=[KEY])

    refused = api.operator.patch("/v1/hosts/h1", json={"credential": None})

    assert places(the_problem(refused, 422, "invalid")) == ["#/credential"]
    assert api.operator.get("/v1/hosts/h1").json()["credential"] == "site"
