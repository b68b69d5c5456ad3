"""What the streams of one process share, and for whom."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from controller.host_aliases import HostNames, Viewer
from controller.rest.streams.feed import EventBatch
from registry.audit import Event
from tests.unit.controller.test_host_aliases import Hosts


def a_failure(number: int, host: str) -> Event:
    return Event(
        id=number,
        at=datetime(2026, 1, 1, tzinfo=UTC),
        actor="worker:1",
        kind="assignment",
        subject_type="assignment",
        subject_id="0",
        tenant="a",
        from_state=None,
        to_state=None,
        event=None,
        reason=f"host {host} does not answer",
        data={},
    )


def test_a_stream_tells_no_name_of_a_host_that_was_added_after_it_began() -> None:
    hosts = Hosts(["kvm-1"])
    names = HostNames(lambda: hosts)
    of_the_stream = Viewer("a", names)
    EventBatch(0, 1, (a_failure(1, "kvm-1"),)).texts(of_the_stream, [1])
    hosts.names.append("kvm-2")

    ((_, text),) = EventBatch(1, 2, (a_failure(2, "kvm-2"),)).texts(of_the_stream, [2])

    assert json.loads(text)["reason"] == f"host {names.alias('a', 'kvm-2')} does not answer"
