from __future__ import annotations

from collections.abc import Callable

import httpx
import pytest

from controller.client.connection import ApiConnection
from controller.client.errors import ApiProblemError, ApiUnreachableError
from controller.client.http import Client
from controller.rest.problems import patterns
from controller.session import name_lookup
from controller.terminal.errors import command_error

HERE = ApiConnection(url="http://api.test", token="secret")


class Wire:
    """Fails or answers, one after the other, and keeps what was sent."""

    def __init__(
        self,
        *outcomes: httpx.Response | Exception,
        sleep: Callable[[float], None] = lambda _s: None,
    ) -> None:
        self.outcomes = list(outcomes)
        self.sent: list[httpx.Request] = []
        self.api = Client(HERE, transport=httpx.MockTransport(self._answer), sleep=sleep)

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


def test_a_post_at_work_is_waited_for_longer_than_a_refused_connection() -> None:
    at_work = httpx.Response(409, json={"code": "idempotency_in_progress", "detail": "busy"})
    waits: list[float] = []
    wire = Wire(at_work, sleep=waits.append)

    with pytest.raises(ApiProblemError, match="busy"):
        wire.api.post("requests", {})

    assert 30 <= sum(waits) <= 60
    assert len(set(wire.keys())) == 1


def test_another_conflict_is_told_at_once() -> None:
    wire = Wire(httpx.Response(409, json={"code": "duplicate", "detail": "there is a host-1"}))

    with pytest.raises(ApiProblemError, match="there is a host-1"):
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

    with pytest.raises(ApiProblemError, match="502") as refused:
        wire.api.get("vms")

    assert command_error(refused.value).status == 1


def test_who_is_above_a_quota_is_not_told_to_take_another_token() -> None:
    def advised(code: str) -> bool:
        problem = {"status": 403, "code": code, "title": code, "detail": "no"}
        return "needs another token" in str(command_error(ApiProblemError(403, problem)))

    assert advised("forbidden")
    assert not advised("quota_exceeded")


def test_no_more_is_read_of_a_list_than_is_wanted() -> None:
    page = {"items": [{"number": 9}, {"number": 8}], "next": "more"}
    wire = Wire(httpx.Response(200, json=page))

    assert [each["number"] for each in wire.api.items("rounds", max_items=2)] == [9, 8]
    assert len(wire.sent) == 1
    assert wire.sent[0].url.params["limit"] == "2"


# ---- too busy ---------------------------------------------------------------


def busy(status: int, retry_after: str | None = "2") -> httpx.Response:
    headers = {} if retry_after is None else {"Retry-After": retry_after}
    return httpx.Response(status, json={"code": "busy", "detail": "later"}, headers=headers)


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("call", ["get", "delete", "put", "post"])
def test_what_may_be_repeated_is_asked_again_when_the_api_says(status: int, call: str) -> None:
    waits: list[float] = []
    wire = Wire(busy(status), busy(status), httpx.Response(200, json={"id": 1}), sleep=waits.append)
    made = getattr(wire.api, call)
    answer = made("things/1") if call in ("get", "delete") else made("things/1", {})

    assert answer == {"id": 1}
    assert len(waits) == 2
    assert all(2 <= wait <= 3 for wait in waits), waits
    assert waits[0] != waits[1], "everybody would come back at once"


def test_a_change_that_may_not_be_repeated_is_told_at_once() -> None:
    wire = Wire(busy(503), httpx.Response(200, json={}))

    with pytest.raises(ApiProblemError, match="later"):
        wire.api.patch("things/1", {})

    assert len(wire.sent) == 1


@pytest.mark.parametrize("call", ["replay", "replay_plan"])
def test_a_replay_has_ten_minutes_and_is_sent_once(call: str) -> None:
    wire = Wire(httpx.ReadTimeout("timed out"))

    with pytest.raises(ApiUnreachableError):
        getattr(wire.api, call)("1")

    assert len(wire.sent) == 1
    assert wire.sent[0].extensions["timeout"]["read"] > 600
    assert "Idempotency-Key" not in wire.sent[0].headers


@pytest.mark.parametrize("retry_after", [None, "3600", "Wed, 21 Oct 2026 07:28:00 GMT"])
def test_who_says_no_time_or_a_long_one_is_not_waited_for(retry_after: str | None) -> None:
    wire = Wire(busy(429, retry_after), httpx.Response(200, json={}))

    with pytest.raises(ApiProblemError, match="later"):
        wire.api.get("things/1")


def test_who_stays_busy_is_given_up() -> None:
    wire = Wire(busy(429))

    with pytest.raises(ApiProblemError, match="later"):
        wire.api.get("things/1")

    assert len(wire.sent) == 4


def test_the_command_takes_the_same_for_a_name_as_the_api() -> None:
    assert f"^{name_lookup._NAME.pattern}$" == patterns.NAME
