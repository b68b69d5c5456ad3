"""Events by server-sent events: in order, none skipped, bounded, and ended in time."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import psycopg
import pytest

from controller.rest import create_app
from controller.rest.streams import feed as feeds
from controller.rest.streams.feed import EventFeed
from registry import RegistryUnavailableError
from tests.e2e.conftest import Api, a_token
from tests.problems import the_problem
from tests.register import add_request, add_tenant
from tests.servers.serving import served

PATIENCE_S = 30.0


@dataclass(frozen=True)
class Message:
    kind: str
    id: int | None
    data: Any


class Stream:
    """What a program reads that follows events."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self._lines = response.iter_lines()

    def next(self) -> Message:
        kind, number, data = "message", None, None
        for line in self._lines:
            name, _, value = line.partition(": ")
            if name == "event":
                kind = value
            elif name == "id":
                number = int(value)
            elif name == "data":
                data = json.loads(value)
            elif not line and data is not None:
                return Message(kind, number, data)
        raise AssertionError("the stream is over")

    def rest(self) -> str:
        return "".join(self._lines)


@contextmanager
def following(url: str, token: str, headers: dict[str, str] | None = None, **query: Any):
    given = {"Authorization": f"Bearer {token}"} | (headers or {})
    with (
        httpx.Client(timeout=PATIENCE_S) as client,
        client.stream("GET", f"{url}/v1/events/stream", headers=given, params=query) as response,
    ):
        if response.status_code != 200:
            response.read()
        yield Stream(response)


@pytest.fixture
def url(api: Api) -> Iterator[str]:
    with served(api.app) as url:
        yield url


def token_of(client: httpx.Client) -> str:
    return client.headers["Authorization"].split()[1]


def test_a_tenant_follows_its_own_events_in_order_as_the_list_tells_them(
    api: Api, url: str
) -> None:
    with following(url, token_of(api.tenant_a)) as stream:
        begin = stream.next()
        add_request(api.registry, tenant="b", name="theirs")
        mine = add_request(api.registry, tenant="a", name="mine")
        shown = stream.next()

    listed = api.tenant_a.get("/v1/events", params={"after": begin.data["after"]}).json()["items"]
    assert (begin.kind, shown.kind) == ("begin", "message")
    assert shown.data == listed[0]
    assert (shown.data["subject_id"], shown.id) == (str(mine.id), listed[0]["id"])
    assert stream.response.headers["content-type"].startswith("text/event-stream")


@pytest.mark.parametrize("kept", [feeds.KEPT_EVENTS, 1])
def test_whoever_connects_again_goes_on_after_the_last_id(
    api: Api, url: str, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds, "KEPT_EVENTS", kept)
    monkeypatch.setattr(feeds, "PAGE", 2)
    operator = token_of(api.operator)
    with following(url, operator) as other:  # so that the reader goes on meanwhile
        start = other.next().data["after"]
        made = [str(add_request(api.registry, name=f"web-{number}").id) for number in range(5)]
        while other.next().data["subject_id"] != made[-1]:
            pass
        with following(url, operator, after=start, kind="request_created") as stream:
            stream.next()
            first = stream.next()
        again = {"Last-Event-ID": str(first.id)}
        with following(url, operator, again, kind="request_created") as stream:
            stream.next()
            others = [stream.next() for _ in made[1:]]

    assert [each.data["subject_id"] for each in (first, *others)] == made


@pytest.mark.parametrize(
    "register_url", [pytest.param("postgresql", marks=pytest.mark.postgresql)], indirect=True
)
def test_an_event_of_a_transaction_that_ends_late_is_not_skipped(
    api: Api, url: str, register_url: str
) -> None:
    columns = "at, actor, kind, subject_type, subject_id, data"
    values = "now(), 'test', 'late', 'test', 'late', '{}'"
    with following(url, token_of(api.operator)) as stream:
        stream.next()
        with psycopg.connect(register_url.replace("+psycopg", "")) as late:  # commits at its end
            late.execute(f"INSERT INTO events ({columns}) VALUES ({values})")
            add_request(api.registry, name="soon")
            time.sleep(2 * feeds.EVERY_S)
        kinds = [stream.next().data["kind"] for _ in range(2)]

    assert kinds[0] == "late"


def test_who_asks_to_be_told_briefly_is_told_the_newest_id_once_for_many(
    api: Api, url: str
) -> None:
    with following(url, token_of(api.tenant_a), brief=True) as stream:
        stream.next()
        for number in range(20):
            add_request(api.registry, tenant="a", name=f"many-{number}")
        last = api.registry.events.list(newest=True, limit=1)[-1].id
        shown = [stream.next()]
        while shown[-1].data["after"] < last:
            shown.append(stream.next())

    assert {each.kind for each in shown} == {"changed"}
    assert len(shown) < 20


def test_streams_are_bounded_and_whoever_is_refused_is_told_to_poll(api: Api) -> None:
    with served(create_app(api.registry, event_streams=12)) as url:
        mine, theirs = token_of(api.tenant_a), token_of(api.tenant_b)
        with following(url, mine) as first, following(url, mine) as second:
            first.next(), second.next()
            with following(url, mine) as third:
                the_problem(third.response, 429, "rate_limited")
                assert "poll GET /v1/events" in third.response.text
                assert int(third.response.headers["Retry-After"]) > 0
            with following(url, theirs) as fourth, following(url, theirs) as fifth:
                fourth.next(), fifth.next()
                add_tenant(api.registry, "c")
                with following(url, a_token(api.registry, "c")) as sixth:
                    assert "from this address" in sixth.response.text
        deadline = time.monotonic() + PATIENCE_S
        while True:  # the places are free again as soon as the API noticed
            with following(url, mine) as again:
                if again.response.status_code == 200:
                    break
            assert time.monotonic() < deadline


def test_a_stream_ends_with_its_token(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        feeds.EventFeed.__init__, "__kwdefaults__", {"every_s": 0.1, "check_every_s": 0.2}
    )
    token, secret = api.registry.tokens.create("tenant", "a", "short", actor="test")
    with served(create_app(api.registry)) as url, following(url, secret) as stream:
        stream.next()
        api.registry.tokens.revoke(token.id, actor="test")
        while (shown := stream.next()).kind != "end":
            pass

        assert shown.data == {"reason": "the token is no longer valid"}
        assert stream.rest() == ""
        with following(url, secret) as again:
            the_problem(again.response, 401, "unauthorized")


def test_a_stream_that_is_behind_says_so_when_the_database_does_not_answer(
    api: Api, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_request(api.registry)
    listed = api.registry.events.list

    def unavailable(**requested: Any) -> Any:
        if "kind" in requested:  # as a stream asks that reads for itself
            raise RegistryUnavailableError("it hangs")
        return listed(**requested)

    monkeypatch.setattr(api.registry.events, "list", unavailable)

    with following(url, token_of(api.operator), after=0) as stream:
        shown = [stream.next() for _ in range(2)]
        rest = stream.rest()

    assert [each.kind for each in shown] == ["begin", "end"]
    assert shown[1].data == {"reason": "the database does not answer; connect again"}
    assert rest == ""


def test_streams_end_when_the_server_does(api: Api) -> None:
    with served(create_app(api.registry)) as url:
        ended: list[Message] = []
        begun = threading.Event()

        def follow() -> None:
            with following(url, token_of(api.operator)) as stream:
                stream.next()
                begun.set()
                ended.append(stream.next())

        thread = threading.Thread(target=follow)
        thread.start()
        assert begun.wait(PATIENCE_S)
        stopped_at = time.monotonic()
    took_s = time.monotonic() - stopped_at
    thread.join(PATIENCE_S)

    assert [each.kind for each in ended] == ["end"]
    assert took_s < 8  # uvicorn waits 10 s for a call that does not end


def test_one_reader_feeds_all_streams_and_ends_with_the_last(api: Api, url: str) -> None:
    feed: EventFeed = api.app.state.services.feed
    reads = 0
    read_page = feed._read_page

    async def counted() -> bool:
        nonlocal reads
        reads += 1
        return await read_page()

    feed._read_page = counted  # type: ignore[method-assign]
    token = token_of(api.operator)
    with following(url, token) as first, following(url, token) as second:
        first.next(), second.next()
        before, since = reads, time.monotonic()
        add_request(api.registry, name="seen")
        assert first.next().data == second.next().data
        time.sleep(1)
        assert reads - before <= (time.monotonic() - since) / feeds.EVERY_S + 3

    deadline = time.monotonic() + PATIENCE_S
    while feed._reader is not None:
        assert time.monotonic() < deadline
        time.sleep(0.05)
