"""The typed client: collections, versions, and types that are the published ones."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from controller.client.connection import ApiConnection
from controller.client.errors import ApiProblemError
from controller.client.generate import models_module, to_annotation
from controller.client.http import Client

ROOT = Path(__file__).parents[3]


class Wire:
    """Keeps what was sent, and answers one after the other."""

    def __init__(self, *answers: httpx.Response) -> None:
        self.sent: list[httpx.Request] = []
        self._answers = list(answers)
        self.client = Client(
            ApiConnection(url="http://api.test", token="t"),
            transport=httpx.MockTransport(self._next),
        )

    def _next(self, request: httpx.Request) -> httpx.Response:
        self.sent.append(request)
        return self._answers.pop(0)


def test_what_was_read_is_changed_only_while_it_is_the_same() -> None:
    refusal = {"code": "version_mismatch", "detail": "changed", "current_version": '"2"'}
    wire = Wire(
        httpx.Response(200, json={"name": "h1", "labels": []}, headers={"ETag": '"1"'}),
        httpx.Response(412, json=refusal),
        httpx.Response(200, json={"name": "h1"}),
    )

    host, version = wire.client.hosts.read("h1")
    with pytest.raises(ApiProblemError) as refused:
        wire.client.hosts.change("h1", {"labels": ["ssd"]}, if_match=version)
    wire.client.hosts.delete("h1", if_match=refused.value.current_version)

    assert host["labels"] == []
    assert [each.headers.get("If-Match") for each in wire.sent] == [None, '"1"', '"2"']
    assert [each.method for each in wire.sent] == ["GET", "PATCH", "DELETE"]


def test_each_call_that_creates_something_has_a_key_of_its_own() -> None:
    wire = Wire(*(httpx.Response(201, json={}) for _ in range(3)))

    wire.client.post("requests", {})
    wire.client.begin_roll({})
    wire.client.upload("images/upload", io.BytesIO(b"x"), query={}, report=lambda *_: None)

    keys = {each.headers.get("Idempotency-Key") for each in wire.sent}
    assert len(keys - {None}) == 3


def test_lists_are_walked_through_and_keys_stay_in_their_place() -> None:
    wire = Wire(
        httpx.Response(200, json={"items": [{"name": "a"}], "next": "c"}),
        httpx.Response(200, json={"items": [{"name": "b"}], "next": None}),
        httpx.Response(200, json={"name": "x/y"}),
    )

    names = [each["name"] for each in wire.client.tenants.list()]
    wire.client.tenants.get("x/y")

    assert names == ["a", "b"]
    assert wire.sent[1].url.params["cursor"] == "c"
    assert wire.sent[2].url.raw_path == b"/v1/tenants/x%2Fy"


def test_the_types_are_those_of_the_published_description() -> None:
    published = json.loads((ROOT / "docs" / "openapi.json").read_text())

    built = ROOT / "controller/client/models.py"

    assert built.exists(), "run `make install`"
    assert built.read_text() == models_module(published), "run `make install`"


@pytest.mark.parametrize(
    ("schema", "annotation"),
    [
        ({"type": "string", "format": "uuid"}, "str"),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "int | None"),
        ({"type": "array", "items": {"$ref": "#/components/schemas/Vm"}}, "list[Vm]"),
        ({"type": "object", "additionalProperties": {"type": "number"}}, "dict[str, float]"),
        ({"type": "object"}, "dict[str, Any]"),
        ({"enum": ["a", "b"], "type": "string"}, "Literal['a', 'b']"),
        ({"const": False}, "Literal[False]"),
        ({}, "Any"),
    ],
)
def test_a_schema_becomes_an_annotation(schema: dict[str, Any], annotation: str) -> None:
    assert to_annotation(schema) == annotation
