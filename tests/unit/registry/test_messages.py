"""Only what our senders write is one of our messages, and Celery sees nothing that they wrote."""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from celery import Celery
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from registry.db.ids import uuid7
from registry.tasks.queues import WorkQueue
from service import ProcessMetrics
from service.broker.inbox import Inbox
from service.broker.messages import MAX_BYTES, ForeignMessageError, envelope, is_one_id, is_text
from service.settings import SharedSettings, celery_config
from tests.strange_messages import a_message, strange_messages, with_header
from workers.tasks import allowed_messages_of_queue

KNOWN = allowed_messages_of_queue(WorkQueue.BUILD, 4)
NOW = datetime.now(UTC)
ROW = str(uuid7())


def read(message: dict[str, Any] | bytes, now: datetime = NOW) -> dict[str, Any]:
    content = message if isinstance(message, bytes) else json.dumps(message).encode()
    return envelope(content, KNOWN, now=now)


def reason(message: dict[str, Any] | bytes, now: datetime = NOW) -> str:
    with pytest.raises(ForeignMessageError) as refused:
        read(message, now)
    return refused.value.reason


def body(*arguments: object, named: object = None, **how: object) -> str:
    rest = {"callbacks": None, "errbacks": None, "chain": None, "chord": None} | how
    return base64.b64encode(json.dumps([arguments, named or {}, rest]).encode()).decode()


def test_what_the_control_centre_sends_is_ours() -> None:
    found = read(a_message("workers.create_vm", UUID(ROW)))

    assert found["headers"]["task"] == "workers.create_vm"
    assert json.loads(base64.b64decode(found["body"]))[0] == [ROW]


def test_what_a_task_sends_is_ours(tmp_path: Path) -> None:
    app = Celery("sender", set_as_current=False)
    app.conf.update(celery_config(SharedSettings(state_dir=tmp_path, broker_url=None)))

    @app.task(name="outer")  # type: ignore[untyped-decorator]  # celery is untyped
    def outer() -> None:
        app.send_task("workers.upload_image", args=[ROW])

    outer.apply(throw=True)

    [file] = (tmp_path / "broker" / "messages").iterdir()
    assert json.loads(file.read_bytes())["headers"]["parent_id"]
    assert read(file.read_bytes())["headers"]["parent_id"] is None


def test_what_a_worker_gives_back_is_ours_again() -> None:
    found = read(a_message()) | {"redelivered": True}
    found["headers"]["redelivered"] = True
    found["properties"]["delivery_info"]["redelivered"] = True

    assert read(found)["headers"]["task"] == found["headers"]["task"]


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("timelimit", "x"), ("timelimit", [1, None]), ("eta", "2026-01-01T00:00:00Z"),
        ("retries", 1), ("retries", False), ("retries", 0.0), ("lang", "c"), ("id", "x"),
        pytest.param("id", ROW.upper(), id="id-in-capitals"), ("shadow", "x"), ("group", "x"),
        ("stamps", {"x": 1}),
        ("stamped_headers", ["x"]), ("argsrepr", "x" * 10_000), ("origin", "\ud800"),
        ("compression", "zlib"), ("new", None), ("expires", "x"), ("expires", 5),
        ("expires", "9999-12-31T23:59:59-14:00"), ("expires", "2026-01-01T00:00:00"),
        ("ignore_result", 1), ("ignore_result", "x"), ("root_id", None),
    ],
)  # fmt: skip
def test_a_header_that_ours_do_not_have_is_refused(header: str, value: object) -> None:
    assert reason(with_header(header, value)) == "headers"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (body(ROW, chord={"task": "x"}), "body"),
        (body(ROW, callbacks=[]), "body"),
        (body(ROW, named={"row_id": ROW}), "body"),
        (body(), "arguments"),
        (body(ROW, ROW), "arguments"),
        (body(f"{{{ROW}}}"), "arguments"),
        (body("../../etc"), "arguments"),
        ("%%%", "body"),
        ("é", "body"),
        (base64.b64encode(b"[" * 20_000).decode(), "body"),
    ],
)
def test_a_body_that_ours_do_not_have_is_refused(text: str, why: str) -> None:
    assert reason(a_message() | {"body": text}) == why


def test_what_is_missing_too_long_unknown_or_late_is_refused() -> None:
    message = a_message()

    assert reason(b"x" * (MAX_BYTES + 1)) == "too_long"
    assert reason({key: message[key] for key in message if key != "body"}) == "envelope"
    assert reason(message | {"content-type": "application/x-python-serialize"}) == "envelope"
    assert reason(a_message("celery.backend_cleanup")) == "task"
    assert reason(message, NOW + timedelta(hours=2)) == "expired"
    assert reason(message, NOW - timedelta(days=2)) == "headers"


def test_nothing_of_a_message_but_task_arguments_id_and_time_is_handed_on() -> None:
    message = a_message()
    message["headers"] |= {"origin": "mark", "argsrepr": "mark", "kwargsrepr": "mark"}
    message["properties"]["reply_to"] = "mark"

    found = read(message)

    assert "mark" not in json.dumps(found)
    assert found["properties"]["delivery_tag"] != message["properties"]["delivery_tag"]


@pytest.mark.parametrize("seed", range(4))
def test_of_any_bytes_a_message_is_made_or_refused(seed: int) -> None:
    refused = 0
    for content in itertools.islice(strange_messages(seed), 2_500):
        try:
            found = read(content)
        except ForeignMessageError:
            refused += 1
        else:
            assert found["headers"]["timelimit"] == [None, None]
            assert is_one_id(json.loads(base64.b64decode(found["body"]))[0])
    assert refused > 2_000


@given(st.one_of(st.binary(max_size=200), st.text(max_size=200).map(str.encode)))
def test_bytes_that_nobody_thought_of_are_refused(content: bytes) -> None:
    reason(content)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
)


@given(st.sampled_from(sorted(a_message()["headers"])), VALUES)
def test_any_value_of_any_header_is_judged(name: str, value: object) -> None:
    try:
        found = read(with_header(name, value))
    except ForeignMessageError:
        return
    assert found["headers"]["task"] in KNOWN.tasks


def test_text_without_bounds_or_with_half_a_character_is_no_text() -> None:
    refused = ("x" * 9_000, "\0", "\udc80", 5, None, b"x")

    assert not any(is_text(value) for value in refused)
    assert is_text("/srv/a folder/é")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_million_strange_messages_are_one_line_a_minute(clock: Callable[[], float]) -> None:
    metrics = ProcessMetrics("test")
    inbox = Inbox([KNOWN], metrics, clock=clock)

    with capture_logs() as shown:
        for _ in range(3):
            for _ in range(500):
                assert inbox.check_message("fuga", b"\x1b]0;owned\x07" + b"x" * 10_000) is None
            clock.now += 61  # type: ignore[attr-defined]

    assert [line["reasons"] for line in shown] == [
        {"not_json": 1}, {"not_json": 500}, {"not_json": 500},
    ]  # fmt: skip
    assert all(len(line["last"]) < 400 and "\x1b" not in line["last"] for line in shown)
    assert b'fuga_messages_dropped_total{reason="not_json"} 1500.0' in metrics.text()


def test_messages_that_came_too_late_are_counted_and_not_told_of() -> None:
    metrics = ProcessMetrics("test")
    late = a_message()
    late["headers"]["expires"] = "2026-01-01T00:00:00+00:00"

    with capture_logs() as shown:
        assert Inbox([KNOWN], metrics).check_message("fuga", json.dumps(late).encode()) is None

    assert shown == []
    assert b'fuga_messages_dropped_total{reason="expired"} 1.0' in metrics.text()
