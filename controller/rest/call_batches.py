"""Batching of simultaneous calls, so that one piece of work serves all of them.

The first call is served at once. Calls that arrive while it runs wait for its end and are then
served as one batch. No call waits for others to arrive.
"""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar
from weakref import WeakKeyDictionary

from starlette.concurrency import run_in_threadpool

#: For answers that are equal for all callers: batch size, and pauses of two thirds of the time.
MAX_CALLERS: Final = 1_000
PAUSE_FACTOR: Final = 2.0

M = TypeVar("M")
R = TypeVar("R")


@dataclass(slots=True)
class _Batch(Generic[M, R]):
    """The calls of one event loop that wait to be served together."""

    members: list[tuple[M, asyncio.Future[R]]] = field(default_factory=list)
    worker: asyncio.Task[None] | None = None  #: the task that serves batches, while there is work


class CallBatcher(Generic[M, R]):
    """Serves simultaneous calls in batches.

    Parameters
    ----------
    run_batch : callable
        Returns the results of the members, in their order. It runs in a thread and in an
        empty context. If it raises, all members get the error.
    max_members : int
        Maximum number of members in a batch.
    pause_factor : float
        Pause between batches, as a multiple of the time that the batch took. It bounds the
        share of the processor, however many calls come.
    """

    def __init__(
        self,
        run_batch: Callable[[Sequence[M]], Sequence[R]],
        *,
        max_members: int,
        pause_factor: float = 0.0,
    ) -> None:
        self._together = run_batch
        self._max_members = max_members
        self._pause_factor = pause_factor
        # Several event loops, each in its own thread, may serve one application.
        self._of_loops: WeakKeyDictionary[asyncio.AbstractEventLoop, _Batch[M, R]] = (
            WeakKeyDictionary()
        )

    async def result(self, member: M) -> R:
        """Return the result of one member, served in a batch with others."""
        loop = asyncio.get_running_loop()
        waiting = self._of_loops.setdefault(loop, _Batch())
        future: asyncio.Future[R] = loop.create_future()
        waiting.members.append((member, future))
        if waiting.worker is None:
            # Context variables of one call must not apply to the others.
            empty = contextvars.Context()
            waiting.worker = loop.create_task(self._serve_batches(waiting), context=empty)
        return await future

    async def _serve_batches(self, waiting: _Batch[M, R]) -> None:
        """Serve the gathered calls of an event loop in batches until none waits."""
        try:
            while waiting.members:
                await asyncio.sleep(0)  # calls that have arrived already join the batch
                some = waiting.members[: self._max_members]
                del waiting.members[: self._max_members]
                began = time.monotonic()
                await self._serve_batch(some)
                if self._pause_factor:
                    await asyncio.sleep(self._pause_factor * (time.monotonic() - began))
        finally:
            waiting.worker = None
            for _, future in waiting.members:  # the loop ends
                future.cancel()

    async def _serve_batch(self, batch: Sequence[tuple[M, asyncio.Future[R]]]) -> None:
        """Run one batch in a thread, and give each call its result or the error."""
        try:
            results = await run_in_threadpool(self._together, [member for member, _ in batch])
        except Exception as error:  # each member gets the error
            for _, future in batch:
                if not future.done():
                    future.set_exception(error)
            return
        except BaseException:
            for _, future in batch:
                future.cancel()
            raise
        for (_, future), result in zip(batch, results, strict=True):
            if not future.done():  # its caller went away
                future.set_result(result)
