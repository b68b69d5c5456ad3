"""Work in a process of its own ends when its caller disconnects."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any, cast

import pytest
from starlette.requests import Request

from controller.errors import PolicyFailedError
from controller.rest.cancellable_work import NICENESS, run_until_disconnect
from controller.rest.problems.errors import BusyError
from controller.rounds.policy_process import PolicyProcess


class HangingUpClient:
    def __init__(self) -> None:
        self.gone = False

    async def is_disconnected(self) -> bool:
        return self.gone


def waiting_on(caller: HangingUpClient, pids: list[int]) -> Any:
    """Return work whose child never answers, and during which the caller goes away."""

    def work(process: PolicyProcess) -> None:
        child = process._running_child(time.monotonic() + 60)
        pids.append(child.pid)
        caller.gone = True
        process._call_child("ready", None, 600.0, policy="test")
        child.close()
        raise PolicyFailedError("test", "ended")

    return work


def test_the_process_ends_when_its_caller_goes_away():
    caller, pids = HangingUpClient(), list[int]()
    places = threading.Semaphore(1)

    with pytest.raises(PolicyFailedError):
        asyncio.run(run_until_disconnect(cast(Request, caller), places, waiting_on(caller, pids)))

    assert len(pids) == 1
    assert places.acquire(blocking=False)


def test_who_finds_no_place_in_time_is_told():
    places = threading.Semaphore(0)

    with pytest.raises(BusyError, match="try again"):
        asyncio.run(
            run_until_disconnect(
                cast(Request, HangingUpClient()), places, lambda _: None, wait_s=0.0
            )
        )

    assert NICENESS == 5
