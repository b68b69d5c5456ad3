"""Who comes first is served at once, who comes meanwhile together with all who do."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Sequence

import pytest

from controller.rest.call_batches import CallBatcher

WAIT_S = 60.0
said: contextvars.ContextVar[str] = contextvars.ContextVar("said", default="nothing")


class Work:
    """Doubles numbers, and is held until it is let go."""

    def __init__(self) -> None:
        self.groups: list[list[int]] = []
        self.begun = threading.Event()
        self.go = threading.Event()

    def __call__(self, numbers: Sequence[int]) -> list[int]:
        self.groups.append(list(numbers))
        self.begun.set()
        assert self.go.wait(WAIT_S)
        if 13 in numbers:
            raise LookupError("thirteen")
        return [2 * number for number in numbers]


async def begun(work: Work) -> None:
    await asyncio.to_thread(work.begun.wait, WAIT_S)


def test_the_first_is_served_alone_and_the_rest_together():
    work = Work()
    gathering = CallBatcher(work, max_members=3)

    async def ask() -> list[int]:
        first = asyncio.create_task(gathering.result(1))
        await begun(work)
        others = [asyncio.create_task(gathering.result(number)) for number in (2, 3, 4, 5)]
        await asyncio.sleep(0)
        work.go.set()
        return await asyncio.gather(first, *others)

    assert asyncio.run(ask()) == [2, 4, 6, 8, 10]
    assert work.groups == [[1], [2, 3, 4], [5]]


def test_an_error_is_told_to_those_who_were_served_together_and_to_nobody_else():
    work = Work()
    gathering = CallBatcher(work, max_members=9)

    async def ask() -> list[int | BaseException]:
        first = asyncio.create_task(gathering.result(1))
        await begun(work)
        others = [asyncio.create_task(gathering.result(number)) for number in (13, 2)]
        await asyncio.sleep(0)
        work.go.set()
        answers = await asyncio.gather(first, *others, return_exceptions=True)
        return [*answers, await gathering.result(4)]

    first, second, third, last = asyncio.run(ask())

    assert (first, last) == (2, 8)
    assert isinstance(second, LookupError)
    assert isinstance(third, LookupError)


def test_who_went_away_is_not_waited_for():
    work = Work()
    gathering = CallBatcher(work, max_members=9)

    async def ask() -> int:
        gone = asyncio.create_task(gathering.result(1))
        await begun(work)
        stays = asyncio.create_task(gathering.result(2))
        gone.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gone
        work.go.set()
        return await stays

    assert asyncio.run(ask()) == 4


def test_the_work_knows_nothing_of_what_is_set_for_a_caller():
    heard = []

    def listen(numbers: Sequence[int]) -> list[int]:
        heard.append(said.get())
        return list(numbers)

    gathering = CallBatcher(listen, max_members=9)

    async def ask() -> None:
        said.set("something")
        await gathering.result(1)
        assert said.get() == "something"

    asyncio.run(ask())

    assert heard == ["nothing"]


def test_several_loops_are_served_each_by_itself():
    gathering = CallBatcher(list, max_members=9)

    assert [asyncio.run(gathering.result(number)) for number in range(3)] == [0, 1, 2]
