"""The OpenAPI document."""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest
from starlette.routing import BaseRoute

from controller.rest import app as api_app
from controller.rest.app import create_app
from controller.rest.pages.openapi import build_openapi
from registry import Registry


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
    for path, method, operation in operations(document):
        is_public = path in {"/v1/login", "/v1/site-keys"}
        assert ("security" in operation) is (path.startswith("/v1") and not is_public)
        refuses = path.startswith("/v1") and not (is_public and method == "get")
        assert ("401" in operation["responses"]) is refuses


def test_every_error_answer_is_a_problem_document(document: dict[str, Any]):
    for _, _, operation in operations(document):
        for status, answer in operation["responses"].items():
            if int(status) >= 400:
                assert list(answer["content"]) == ["application/problem+json"]


def test_every_creating_post_takes_an_idempotency_key(document: dict[str, Any]):
    creating = {
        path: operation
        for path, method, operation in operations(document)
        if method == "post"
        and not path.endswith(
            ("/replay", "/second-policy", "/upload", "/fence", "/repair", "/release")
        )
        and path != "/v1/login"  # a code is good once
    }

    assert creating
    for operation in creating.values():
        assert "Idempotency-Key" in {each["name"] for each in operation["parameters"]}


def test_every_reference_leads_somewhere(document: dict[str, Any]):
    references = set(re.findall(r"'#/components/schemas/([^']+)'", str(document)))

    assert references <= set(document["components"]["schemas"])


def test_refusals_at_the_same_time_make_one_document(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each would take half a second of the processor from all callers."""
    made = []
    together = threading.Barrier(8)

    def slowly(routes: Sequence[BaseRoute]) -> dict[str, Any]:
        made.append(1)
        return build_openapi(routes)

    def ask() -> dict[str, Any]:
        together.wait(60)
        return api_app._routes_document()

    monkeypatch.setattr(api_app, "build_openapi", slowly)
    api_app._cached_routes_document.cache_clear()
    with ThreadPoolExecutor(8) as threads:
        documents = [each.result(60) for each in [threads.submit(ask) for _ in range(8)]]

    assert len(made) == 1
    assert all(each is documents[0] for each in documents)
