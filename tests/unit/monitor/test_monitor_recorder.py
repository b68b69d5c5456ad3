"""Looks that several watches bring are written together; each learns what became of its own."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import pytest

from monitor.recorder import MAX_AT_ONCE, PollRecorder
from registry.db.ids import uuid7
from registry.hosts import MissPolicy

WAIT_S = 60
POLICY = MissPolicy(unreachable_after=3, down_after=10)


class Hosts:
    """Writes as it is told, and keeps the first write waiting until it is released."""

    def __init__(self, bad: UUID | None = None, another: UUID | None = None) -> None:
        self.bad, self.another = bad, another
        self.written: list[dict[UUID, Any]] = []
        self.writing, self.released = threading.Event(), threading.Event()

    @property
    def hosts(self) -> Hosts:
        return self

    def record_reports(self, reports: Mapping[UUID, Any]) -> Mapping[UUID, Any]:
        first = not self.writing.is_set()
        self.writing.set()
        if first:
            assert self.released.wait(WAIT_S)
        if self.bad in reports:
            raise ValueError("it cannot be written")
        self.written.append(dict(reports))
        return {
            key: LookupError("another machine") if key == self.another else f"host of {report}"
            for key, report in reports.items()
        }


def recorded(hosts: Hosts, looks: Mapping[UUID, str]) -> list[Any]:
    """Bring a first look, and the others while it is written; return what became of each."""
    recorder: Any = PollRecorder(hosts, 0.0, POLICY)  # type: ignore[arg-type]
    (first, report), *others = looks.items()
    with ThreadPoolExecutor(len(looks)) as watches:
        futures = [watches.submit(recorder.record, first, report)]
        assert hosts.writing.wait(WAIT_S)
        futures += [watches.submit(recorder.record, *look) for look in others]
        waiting = threading.Event()
        while len(recorder._pending) < len(others):
            waiting.wait(0.01)
        hosts.released.set()
        return [future.exception(WAIT_S) or future.result() for future in futures]


def test_looks_that_come_while_one_is_written_are_written_together() -> None:
    looks = {uuid7(): f"look {number}" for number in range(MAX_AT_ONCE + 2)}
    hosts = Hosts()

    found = recorded(hosts, looks)

    assert found == [f"host of {report}" for report in looks.values()]
    assert [len(each) for each in hosts.written] == [1, MAX_AT_ONCE, 1]


def test_a_machine_that_is_another_is_told_to_its_watch_alone() -> None:
    looks = {uuid7(): f"look {number}" for number in range(4)}
    other = list(looks)[2]

    found = recorded(Hosts(another=other), looks)

    assert [type(each) for each in found] == [str, str, LookupError, str]


@pytest.mark.parametrize("which", [0, 2])
def test_a_look_that_cannot_be_written_keeps_no_other_from_it(which: int) -> None:
    looks = {uuid7(): f"look {number}" for number in range(4)}
    hosts = Hosts(bad=list(looks)[which])

    found = recorded(hosts, looks)

    assert [isinstance(each, ValueError) for each in found] == [n == which for n in range(4)]
    assert sum(len(each) for each in hosts.written) == 3
