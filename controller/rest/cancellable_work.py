"""Runs work for a call in a child process, and kills it when the caller disconnects."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request as HttpRequest

from controller.fork_server.children import StartChild, start_interpreter
from controller.rest.problems.errors import BusyError
from controller.rounds.policy_process import PolicyProcess

#: Lower priority than API and rounds, higher than estimates and what-ifs: a caller waits.
NICENESS: Final = 5
#: Time for which a call waits for a permit.
WAIT_S: Final = 5.0
_CHECK_EVERY_S: Final = 0.5

T = TypeVar("T")


async def run_until_disconnect(
    request: HttpRequest,
    permits: threading.Semaphore,
    work: Callable[[PolicyProcess], T],
    *,
    start: StartChild = start_interpreter,
    wait_s: float = WAIT_S,
) -> T:
    """Run work in a thread and return its result; kill its process if the caller disconnects.

    Raises
    ------
    BusyError
        If no permit becomes free within ``wait_s``.
    """
    await _acquire_permit(request, permits, wait_s)
    try:
        process = PolicyProcess(niceness=NICENESS, start=start)
        done = asyncio.ensure_future(run_in_threadpool(partial(_run_and_close, process, work)))
        while not (await asyncio.wait({done}, timeout=_CHECK_EVERY_S))[0]:
            if await request.is_disconnected():
                # Repeatedly, because the child may be just starting.
                while not (await asyncio.wait({done}, timeout=0.1))[0]:
                    process.kill()
        return done.result()
    finally:
        permits.release()


async def _acquire_permit(
    request: HttpRequest, permits: threading.Semaphore, wait_s: float
) -> None:
    """Take a permit once one is free; raise `BusyError` after ``wait_s``."""
    end = time.monotonic() + wait_s
    while not permits.acquire(blocking=False):
        if time.monotonic() >= end or await request.is_disconnected():
            raise BusyError("other rounds are being computed again")
        await asyncio.sleep(0.1)


def _run_and_close(process: PolicyProcess, work: Callable[[PolicyProcess], T]) -> T:
    try:
        return work(process)
    finally:
        process.close()
