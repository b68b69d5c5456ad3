from __future__ import annotations

import httpx
import pytest

from controller.cli.errors import at_the_prompt
from controller.client.connection import Connection
from controller.client.errors import ApiUnreachableError, ProblemError
from controller.client.http import Client

HERE = Connection(url="http://api.test", token="secret")


class Wire:
    """Fails or answers, one after the other, and keeps what was sent."""

    def __init__(self, *outcomes: httpx.Response | Exception) -> None:
        self.outcomes = list(outcomes)
        self.sent: list[httpx.Request] = []
        self.api = Client(HERE, transport=httpx.MockTransport(self._answer), sleep=lambda _s: None)

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.sent.append(request)
        outcome = self.outcomes.pop(0) if len(self.outcomes) > 1 else self.outcomes[0]
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def keys(self) -> list[str]:
        return [each.headers["Idempotency-Key"] for each in self.sent]


def test_a_post_whose_answer_was_lost_is_sent_again_with_the_same_key() -> None:
    lost = httpx.ReadError("connection reset")
    wire = Wire(httpx.ConnectError("refused"), lost, httpx.Response(201, json={"id": 1}))

    answer = wire.api.post("requests", {"count": 1})

    assert answer == {"id": 1}
    assert len(wire.sent) == 3
    assert len(set(wire.keys())) == 1


def test_two_posts_have_two_keys() -> None:
    wire = Wire(httpx.Response(201, json={}))

    wire.api.post("requests", {})
    wire.api.post("requests", {})

    assert len(set(wire.keys())) == 2


def test_a_post_that_is_still_in_progress_is_asked_again() -> None:
    busy = httpx.Response(409, json={"code": "idempotency_in_progress", "detail": "busy"})
    wire = Wire(busy, httpx.Response(201, json={"id": 1}))

    assert wire.api.post("requests", {}) == {"id": 1}
    assert len(set(wire.keys())) == 1


def test_another_conflict_is_told_at_once() -> None:
    wire = Wire(httpx.Response(409, json={"code": "duplicate", "detail": "there is a host-1"}))

    with pytest.raises(ProblemError, match="there is a host-1"):
        wire.api.post("hosts", {})

    assert len(wire.sent) == 1


def test_who_never_answers_is_unreachable() -> None:
    wire = Wire(httpx.ConnectError("refused"))

    with pytest.raises(ApiUnreachableError, match=r"http://api\.test: refused"):
        wire.api.get("vms")


def test_a_page_that_is_no_json_is_not_our_api() -> None:
    wire = Wire(httpx.Response(200, text="<html>hello</html>"))

    with pytest.raises(ApiUnreachableError, match="not fuga's API"):
        wire.api.get("vms")


def test_an_error_without_a_document_still_says_something() -> None:
    wire = Wire(httpx.Response(502, text="bad gateway"))

    with pytest.raises(ProblemError, match="502") as refused:
        wire.api.get("vms")

    assert at_the_prompt(refused.value).status == 1


def test_no_more_is_read_of_a_list_than_is_wanted() -> None:
    page = {"items": [{"number": 9}, {"number": 8}], "next": "more"}
    wire = Wire(httpx.Response(200, json=page))

    assert [each["number"] for each in wire.api.items("rounds", most=2)] == [9, 8]
    assert len(wire.sent) == 1
    assert wire.sent[0].url.params["limit"] == "2"
