"""The filesystem broker, read by several workers and written by senders that die."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from kombu import Connection  # type: ignore[attr-defined]
from kombu.asynchronous import Hub
from kombu.simple import SimpleQueue

from registry.db.ids import uuid7
from registry.tasks.queues import WorkQueue
from service import ProcessMetrics
from service.broker import redis_inbox
from service.broker.inbox import OPTION, Inbox
from service.broker.messages import AllowedMessages
from tests.strange_messages import a_message
from workers.broker import filesystem_broker_config
from workers.tasks import allowed_messages_of_queue

ROW = uuid7()


@pytest.fixture
def name() -> str:
    """A queue name of its own: kombu remembers bindings per process, whatever the folder."""
    return f"fuga-{uuid7().hex}"


@pytest.fixture
def broker(tmp_path: Path, name: str) -> dict[str, Any]:
    messages = tmp_path / "messages"
    messages.mkdir()
    options = {
        "data_folder_in": str(messages),
        "data_folder_out": str(messages),
        "control_folder": str(tmp_path / "control"),
        "store_processed": False,
    }
    tasks = allowed_messages_of_queue(WorkQueue.BUILD, 4).tasks
    queues = [AllowedMessages(each, tasks, 100) for each in (name, f"other.{name}")]
    inbox = Inbox(queues, ProcessMetrics("test"))
    config = filesystem_broker_config(options, inbox)
    return {
        "transport": config["broker_transport"],
        "transport_options": config["broker_transport_options"],
    }


def queue_at(broker: dict[str, Any], name: str) -> SimpleQueue:
    return Connection("filesystem://", **broker).SimpleQueue(name, no_ack=True)


def send(broker: dict[str, Any], name: str, row_id: UUID = ROW) -> None:
    folder = Path(broker["transport_options"]["data_folder_out"])
    message = json.dumps(a_message("workers.create_vm", row_id))
    (folder / f"1_{uuid7()}.{name}.msg").write_text(message)


def row_of(message: Any) -> str:
    [row_id] = message.payload[0]
    return str(row_id)


def test_what_is_sent_is_read_once(broker: dict[str, Any], tmp_path: Path, name: str) -> None:
    rows = [uuid7(), uuid7()]
    for row_id in rows:
        send(broker, name, row_id)

    first, second = queue_at(broker, name), queue_at(broker, name)

    assert [row_of(queue.get_nowait()) for queue in (first, second)] == [str(row) for row in rows]
    with pytest.raises(first.Empty):
        first.get_nowait()
    assert list((tmp_path / "messages").iterdir()) == []
    assert list((tmp_path / "taken").iterdir()) == []


@pytest.mark.parametrize("content", [b"", b'{"body": "eyJ', b"\xff\xfe", b"[]", b'{"n": 1}'])
def test_a_message_whose_sender_was_killed_is_dropped_and_the_next_one_read(
    broker: dict[str, Any], tmp_path: Path, name: str, content: bytes
) -> None:
    queue = queue_at(broker, name)
    (tmp_path / "messages" / f"0_half.{name}.msg").write_bytes(content)
    send(broker, name)

    assert row_of(queue.get_nowait()) == str(ROW)


def test_messages_of_other_queues_are_left_alone(broker: dict[str, Any], name: str) -> None:
    send(broker, f"other.{name}")
    queue = queue_at(broker, name)

    with pytest.raises(queue.Empty):
        queue.get_nowait()

    assert row_of(queue_at(broker, f"other.{name}").get_nowait()) == str(ROW)


def test_a_folder_that_is_gone_is_an_empty_queue(
    broker: dict[str, Any], tmp_path: Path, name: str
) -> None:
    queue = queue_at(broker, name)
    (tmp_path / "messages").rmdir()

    with pytest.raises(queue.Empty):
        queue.get_nowait()


def test_a_loop_that_asks_for_no_message_turns_all_the_same() -> None:
    """While all threads are taken kombu asks no channel: nobody is to take the worker for hung."""
    now = [1.0]
    inbox = Inbox([], ProcessMetrics("test"), clock=lambda: now[0])
    hub = Hub()
    with Connection(
        "redis://127.0.0.1:1", transport=redis_inbox.TRANSPORT, transport_options={OPTION: inbox}
    ) as connection:
        connection.transport.register_with_event_loop(connection.transport, hub)
        now[0] = 2.0
        for tick in list(hub.on_tick):
            tick()
    hub.close()

    assert inbox.turned_at == 2.0
