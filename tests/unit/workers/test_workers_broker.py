"""The filesystem broker, read by several workers and written by senders that die."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kombu import Connection
from kombu.simple import SimpleQueue

from registry.ids import uuid7
from workers.broker import TRANSPORT


@pytest.fixture
def broker(tmp_path: Path) -> dict[str, Any]:
    messages = tmp_path / "messages"
    messages.mkdir()
    (tmp_path / "taken").mkdir()
    return {
        "transport": TRANSPORT,
        "transport_options": {
            "data_folder_in": str(messages),
            "data_folder_out": str(messages),
            "control_folder": str(tmp_path / "control"),
            "processed_folder": str(tmp_path / "taken"),
            "store_processed": False,
        },
    }


@pytest.fixture
def name() -> str:
    """A queue name of its own: kombu remembers bindings per process, whatever the folder."""
    return f"fuga-{uuid7().hex}"


def queue_at(broker: dict[str, Any], name: str) -> SimpleQueue:
    return Connection("filesystem://", **broker).SimpleQueue(name, no_ack=True)


def test_what_kombu_sends_is_read_once(broker: dict[str, Any], tmp_path: Path, name: str) -> None:
    options = broker["transport_options"]
    sender = Connection("filesystem://", transport_options=options).SimpleQueue(name)
    sender.put({"n": 1})
    sender.put({"n": 2})

    first, second = queue_at(broker, name), queue_at(broker, name)

    read = [queue.get_nowait().payload["n"] for queue in (first, second)]
    assert sorted(read) == [1, 2]
    with pytest.raises(first.Empty):
        first.get_nowait()
    assert list((tmp_path / "messages").iterdir()) == []
    assert list((tmp_path / "taken").iterdir()) == []


@pytest.mark.parametrize("content", [b"", b'{"body": "eyJ', b"\xff\xfe"])
def test_a_message_whose_sender_was_killed_is_dropped_and_the_next_one_read(
    broker: dict[str, Any], tmp_path: Path, name: str, content: bytes
) -> None:
    queue = queue_at(broker, name)
    (tmp_path / "messages" / f"0_half.{name}.msg").write_bytes(content)
    queue.put({"n": 2})

    assert queue.get_nowait().payload == {"n": 2}


def test_messages_of_other_queues_are_left_alone(broker: dict[str, Any], name: str) -> None:
    other = queue_at(broker, f"other.{name}")
    other.put({"n": 1})
    queue = queue_at(broker, name)

    with pytest.raises(queue.Empty):
        queue.get_nowait()

    assert other.get_nowait().payload == {"n": 1}
