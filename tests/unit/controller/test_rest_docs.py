"""The OpenAPI document and the page made of it."""

from __future__ import annotations

import re
from typing import Any, cast

import pytest

from controller.rest.app import create_app
from controller.rest.docs_page import docs_page, type_text
from registry import Registry
from tests.http_client import a_client


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return create_app(cast(Registry, object())).openapi()


def operations(document: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    return [
        (path, method, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]


def test_every_operation_below_v1_asks_for_a_token_and_says_so(document: dict[str, Any]):
    for path, _, operation in operations(document):
        assert ("security" in operation) is path.startswith("/v1")
        assert ("401" in operation["responses"]) is path.startswith("/v1")


def test_every_error_answer_is_a_problem_document(document: dict[str, Any]):
    for _, _, operation in operations(document):
        for status, answer in operation["responses"].items():
            if int(status) >= 400:
                assert list(answer["content"]) == ["application/problem+json"]


def test_every_creating_post_takes_an_idempotency_key(document: dict[str, Any]):
    creating = {
        path: operation
        for path, method, operation in operations(document)
        if method == "post" and not path.endswith(("/replay", "/upload", "/fence", "/repair"))
    }

    assert creating
    for operation in creating.values():
        assert "Idempotency-Key" in {each["name"] for each in operation["parameters"]}


def test_every_reference_leads_somewhere(document: dict[str, Any]):
    references = set(re.findall(r"'#/components/schemas/([^']+)'", str(document)))

    assert references <= set(document["components"]["schemas"])


def test_the_page_shows_every_operation_and_loads_nothing(document: dict[str, Any]):
    answer = a_client(create_app(cast(Registry, object()))).get("/docs")

    assert answer.headers["content-type"].startswith("text/html")
    for path, _, _ in operations(document):
        assert path in answer.text
    assert not re.search(r"<(script|link|img|iframe)|src=|https?://", answer.text)
    assert "default-src 'none'" in answer.headers["content-security-policy"]


def test_the_page_escapes_what_it_shows():
    page = docs_page(
        {
            "info": {"title": "<b>", "version": "1", "description": "<script>"},
            "paths": {},
            "components": {"schemas": {}},
        }
    )

    assert "<script>" not in page


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"$ref": "#/components/schemas/Vm"}, "Vm"),
        ({"type": "array", "items": {"$ref": "#/x/Vm"}}, "list of Vm"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "string or null"),
        ({"type": "integer", "minimum": 1, "maximum": 9}, "integer ≥ 1 ≤ 9"),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, "object of integer"),
        ({"type": "object", "additionalProperties": True}, "object"),
        ({"enum": ["a", "b"]}, "a | b"),
        ({"const": "ok"}, "ok"),
        ({}, "anything"),
    ],
)
def test_a_schema_is_told_in_a_few_words(schema: dict[str, Any], text: str):
    assert type_text(schema) == text
