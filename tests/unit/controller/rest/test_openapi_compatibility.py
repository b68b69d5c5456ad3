"""Programs written for the published API go on working; docs/openapi.json is that promise."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from controller.rest.etags import UNVERSIONED, UPDATES, VERSIONED
from controller.rest.pages.published import OPENAPI_FILE, PROBLEMS_FILE, main, openapi_document
from controller.rest.problems.pages import problem_meanings, problem_page, problems_markdown
from tests.openapi_changes import breaking_changes

DOCS = Path(__file__).parents[4] / "docs"
ACCEPT = """
These changes break programs that were written for the published API:
  {changes}
Keep what they need (an optional field, the old one beside the new one). If it has to be,
accept the change: run `make api-docs`, commit docs/openapi.json, and write a fragment
changelog.d/*.changed.md or *.removed.md that says what callers have to do.
"""


@pytest.fixture(scope="module")
def now() -> dict[str, Any]:
    return openapi_document()


def test_nothing_that_is_published_was_broken(now: dict[str, Any]):
    published = json.loads((DOCS / OPENAPI_FILE).read_text())

    changes = breaking_changes(published, now)

    assert not changes, ACCEPT.format(changes="\n  ".join(changes))


def test_the_page_of_problems_is_made_of_the_table():
    assert (DOCS / PROBLEMS_FILE).read_text() == problems_markdown(), (
        "run `make api-docs` and commit it"
    )


def test_every_kind_of_problem_says_what_it_means():
    for each in problem_meanings():
        assert each.said, each.kind.code
        assert each.kind.title in str(problem_page(each))


def test_both_are_written_into_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main([str(tmp_path)]) == 0
    assert {each.name for each in tmp_path.iterdir()} == {OPENAPI_FILE, PROBLEMS_FILE}
    assert main([]) == 2
    assert "usage" in capsys.readouterr().err


def test_every_collection_that_is_updated_has_versions(now: dict[str, Any]):
    """One row in `controller.rest.etags` gives a collection ETag and If-Match."""
    updated = {
        path.split("/")[2]
        for path, operations in now["paths"].items()
        if {method.upper() for method in operations} & UPDATES
    }

    assert updated - set(VERSIONED) - UNVERSIONED == set(), "add it to VERSIONED or UNVERSIONED"


# ---- what counts as breaking -------------------------------------------------------

Change = Callable[[dict[str, Any]], Any]
HOST, HOSTS = "/v1/hosts/{name}", "/v1/hosts"


def schema(document: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = document["components"]["schemas"][name]
    return found


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda d: d["paths"].pop(HOSTS), "GET /v1/hosts is gone"),
        (lambda d: d["paths"][HOST].pop("patch"), "PATCH /v1/hosts/{name} is gone"),
        (lambda d: schema(d, "Host")["properties"].pop("labels"), ".labels is gone"),
        (lambda d: schema(d, "Host")["required"].remove("labels"), ".labels may be missing"),
        (
            lambda d: schema(d, "Host")["properties"].update(name={"type": "integer"}),
            ".name may be integer now",
        ),
        (
            lambda d: schema(d, "TenantInput")["required"].append("weight"),
            "POST /v1/tenants body.weight is required now",
        ),
        (
            lambda d: schema(d, "TenantInput")["properties"].pop("weight"),
            "body.weight is no longer taken",
        ),
        (
            lambda d: schema(d, "TenantInput")["properties"]["name"].update(maxLength=10),
            "body.name maxLength is 10 now, was 63",
        ),
        (
            lambda d: schema(d, "TokenInput")["properties"]["role"].update(enum=["operator"]),
            "body.role no longer takes tenant",
        ),
        (
            lambda d: schema(d, "TenantInput")["properties"]["weight"].update(type="string"),
            "body.weight no longer takes integer, number",
        ),
        (
            lambda d: d["paths"][HOSTS]["get"]["parameters"].pop(0),
            "GET /v1/hosts query parameter limit is gone",
        ),
        (
            lambda d: d["paths"][HOSTS]["get"]["parameters"].append(
                {"in": "query", "name": "new", "required": True, "schema": {}}
            ),
            "query parameter new is new and required",
        ),
        (
            lambda d: d["paths"][HOST]["get"]["responses"].pop("200"),
            "GET /v1/hosts/{name} no longer answers 200",
        ),
    ],
)
def test_a_breaking_change_is_told(now: dict[str, Any], change: Change, told: str):
    changed = copy.deepcopy(now)
    change(changed)

    assert any(told in each for each in breaking_changes(now, changed))


def test_what_is_added_breaks_nobody(now: dict[str, Any]):
    changed = copy.deepcopy(now)
    changed["paths"]["/v1/new"] = {"get": {"responses": {}}}
    schema(changed, "Host")["properties"]["new"] = {"type": "string"}
    schema(changed, "TenantInput")["properties"]["new"] = {"type": "string"}
    schema(changed, "TenantInput")["properties"]["name"]["maxLength"] = 100
    schema(changed, "TokenInput")["properties"]["role"]["enum"].append("auditor")
    changed["paths"][HOSTS]["get"]["parameters"].append(
        {"in": "query", "name": "new", "schema": {}}
    )

    assert breaking_changes(now, changed) == []
