"""One control centre leads, the others follow; what each knows of it is only a hint."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from controller.control_center.leadership import Leadership
from registry import Registry
from registry.rounds import CONTROL_LEASE
from tests.raw_sql import RawSql


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def expire(raw: RawSql) -> None:
    over = raw.before("now", "1 seconds")
    raw.run(f"UPDATE leases SET expires_at = {over} WHERE name = ?", CONTROL_LEASE)


def once(leadership: Leadership) -> None:
    """Do what the background does once."""

    class Stopping(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            self.set()
            return True

    leadership.renew_until_stopped(Stopping())


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def centre(register: Registry, clock: Clock) -> Callable[[str], Leadership]:
    return lambda holder: Leadership(register, holder, 60, now=clock)


def test_a_control_centre_that_cannot_listen_takes_no_lease(
    register: Registry, register_url: str, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        settings = {"DATABASE_URL": register_url, "STATE_DIR": str(tmp_path)}
        settings["METRICS_LISTEN"] = address

        ended = subprocess.run(
            [sys.executable, "-m", "controller.cli.main", "control"],
            env={**os.environ, **{f"FUGA_{name}": value for name, value in settings.items()}},
            check=False,
            capture_output=True,
            text=True,
            timeout=60,
        )

    assert ended.returncode != 0
    said = ended.stdout + ended.stderr
    assert f"cannot listen on {address}: Address already in use" in said
    assert "control_centre_started" not in said
    assert register.liveness().lease is None


def test_one_leads_the_other_follows_and_takes_over_in_the_background(
    centre: Callable[[str], Leadership], raw: RawSql
) -> None:
    one, two = centre("one"), centre("two")
    once(one)
    once(two)
    assert one.lease is not None
    assert two.lease is None
    assert one.check().message == "held"
    assert two.check().message == "another process leads"

    expire(raw)
    once(two)
    once(one)

    assert two.lease is not None
    assert two.lease.epoch == 2
    assert one.lease is None
    assert (one.check().well, two.check().well) == (True, True)


def test_who_has_not_asked_for_a_lease_is_not_ready(
    centre: Callable[[str], Leadership], clock: Clock
) -> None:
    leadership = centre("one")
    assert not leadership.check().well

    once(leadership)
    assert leadership.check().well
    clock.now += 61

    assert leadership.check().message == "last requested 61 s ago"
    assert not leadership.check().well


def test_a_lease_of_an_epoch_that_is_over_takes_nothing_from_a_later_one(
    centre: Callable[[str], Leadership], raw: RawSql
) -> None:
    leadership = centre("one")
    first = leadership.take()
    assert first is not None
    expire(raw)
    once(leadership)
    assert leadership.lease is None
    once(leadership)
    assert leadership.lease is not None
    assert leadership.lease.epoch == 2

    leadership.forget(first)

    assert leadership.lease is not None


def test_who_gives_up_lets_the_other_lead_at_once(centre: Callable[[str], Leadership]) -> None:
    one, two = centre("one"), centre("two")
    once(one)
    one.release()
    once(two)

    assert (one.lease, two.lease is not None) == (None, True)
