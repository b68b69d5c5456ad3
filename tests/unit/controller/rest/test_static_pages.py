"""What strangers may fetch is made once, whoever fetches it and however often."""

from __future__ import annotations

import gzip
import re
from typing import cast

import pytest

from controller.rest import app as app_module
from controller.rest.app import create_app
from controller.rest.pages import docs as docs_page
from registry import Registry
from tests.servers.asgi import call

SCRIPT = "/docs/swagger-ui-bundle.js"
PAGES = [
    *("/openapi.json", "/docs", "/docs/start.js", SCRIPT, "/docs/swagger-ui.css"),
    "/problems/malformed",
]


@pytest.mark.parametrize("path", ["/openapi.json", SCRIPT, "/problems/malformed"])
def test_a_flood_of_calls_for_a_page_makes_it_once(path: str, monkeypatch: pytest.MonkeyPatch):
    made = []

    def counted(*_: object) -> str:
        made.append(path)
        return "a page " * 1000

    monkeypatch.setattr(app_module, "problem_page", counted)
    monkeypatch.setattr(docs_page, "read_asset", counted)
    monkeypatch.setattr(app_module.json, "dumps", counted)  # type: ignore[attr-defined]
    app = create_app(cast(Registry, None))

    answers = [call(app, "GET", path) for _ in range(50)]

    assert {answer.status for answer in answers} == {200}
    assert made == [path]


@pytest.mark.parametrize("path", PAGES)
def test_who_has_the_page_is_sent_no_other(path: str):
    app = create_app(cast(Registry, None))
    first = call(app, "GET", path)

    again = call(app, "GET", path, headers={"if-none-match": first.headers["etag"]})

    assert (again.status, again.body) == (304, b"")
    assert again.headers["etag"] == first.headers["etag"]


def test_a_long_page_is_sent_packed_to_who_can_unpack_it():
    app = create_app(cast(Registry, None))
    plain = call(app, "GET", "/openapi.json")

    packed = call(app, "GET", "/openapi.json", headers={"accept-encoding": "gzip, br"})

    assert packed.headers["content-encoding"] == "gzip"
    assert gzip.decompress(packed.body) == plain.body
    assert len(packed.body) < len(plain.body) / 5


def test_a_long_page_waits_for_its_reader_piece_by_piece():
    longest = 1 << 16

    answer = call(create_app(cast(Registry, None)), "GET", SCRIPT)

    assert len(answer.body) > 10 * longest
    assert max(len(each["body"]) for each in answer.sent) <= longest
    assert [each["more_body"] for each in answer.sent] == [True] * (len(answer.sent) - 1) + [False]


def test_nothing_that_the_page_of_operations_loads_is_elsewhere_or_inline():
    app = create_app(cast(Registry, None))
    page = call(app, "GET", "/docs")
    loaded = re.findall(r'(?:src|href)="([^"]+)"', page.body.decode())

    assert {call(app, "GET", f"/{each}").status for each in loaded if each != "data:,"} == {200}
    assert {each.partition("/")[0] for each in loaded} == {"docs", "data:,", "openapi.json"}
    assert not re.search(rb"<script(?! src=)|<style|style=|\bon\w+=", page.body)
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy


def test_a_page_of_no_kind_of_problem_is_nowhere():
    answer = call(create_app(cast(Registry, None)), "GET", "/problems/nonsense")

    assert (answer.status, answer.code) == (404, "no_such_path")
