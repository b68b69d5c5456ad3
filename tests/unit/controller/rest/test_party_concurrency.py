"""Calls of one party at once: two while others call, all when it is alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from controller.rest.middleware import party_concurrency
from controller.rest.middleware.party_concurrency import ALONE_AFTER_S, PartyConcurrency


class Calls:
    """Calls that are worked on until they are told to end."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.limit = PartyConcurrency(at_once=2, clock=lambda: self.now)
        self.began: list[str] = []
        self.ends: dict[str, Callable[[], None]] = {}

    async def _call(self, party: str, name: str) -> None:
        self.ends[name] = await self.limit.begin(party)
        self.began.append(name)

    async def call(self, party: str, *names: str) -> list[asyncio.Task[None]]:
        tasks = [asyncio.create_task(self._call(party, name)) for name in names]
        await settled()
        return tasks

    async def end(self, name: str) -> None:
        self.ends[name]()
        await settled()


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def run(story: Callable[[Calls], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(story(Calls()))


def test_two_calls_of_a_party_are_worked_on_while_others_call_in_their_order() -> None:
    async def story(calls: Calls) -> None:
        await calls.call("b", "b1")
        await calls.call("a", "a1", "a2", "a3", "a4")
        await calls.call("b", "b2")
        assert calls.began == ["b1", "a1", "a2", "b2"]

        await calls.end("a2")
        await calls.end("a2")  # counts once
        assert calls.began[4:] == ["a3"]
        await calls.end("a1")
        assert calls.began[5:] == ["a4"]

    run(story)


def test_a_party_that_is_alone_is_not_held_up() -> None:
    async def story(calls: Calls) -> None:
        await calls.call("b", "b1")
        await calls.end("b1")
        await calls.call("a", "a1", "a2", "a3", "a4", "a5")
        calls.now += ALONE_AFTER_S + 0.1

        await calls.call("a", "a6")
        assert calls.began == ["b1", "a1", "a2", "a6"]
        await calls.end("a1")
        assert calls.began[4:] == ["a3", "a4", "a5"]

    run(story)


def test_a_caller_that_goes_away_keeps_no_place() -> None:
    async def story(calls: Calls) -> None:
        await calls.call("b", "b1")
        await calls.call("a", "a1", "a2")
        gone, late, _ = await calls.call("a", "a3", "a4", "a5")
        gone.cancel()
        await settled()
        calls.ends["a1"]()  # and the next one goes away before it can begin
        late.cancel()
        await settled()
        assert calls.began[3:] == ["a5"]

    run(story)


def test_a_long_call_gives_its_place_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(party_concurrency, "COUNTS_S", 0.0)

    async def story(calls: Calls) -> None:
        await calls.call("b", "b1")
        waiting = await calls.call("a", "a1", "a2", "a3")
        await asyncio.wait_for(asyncio.gather(*waiting), 60)

    run(story)
