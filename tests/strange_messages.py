"""What a stranger may put into a queue: real messages bent, and bytes that never were one."""

from __future__ import annotations

import base64
import copy
import json
import random
import tempfile
import zlib
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any
from uuid import UUID

from celery import Celery

from registry.db.ids import uuid7
from service.settings import SharedSettings, celery_config

_BOMB = zlib.compress(b"\0" * (64 << 20), 9)
_VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 0.0, 10**400, float("nan"), float("inf"), "", "x", "0",
    "\ud800", "\0", "\x1b]0;owned\x07", "\u202e", "é" * 5_000, [], {}, [None], [None, None],
    ["x", "y"], {"x": 1}, {"__type__": "uuid", "__value__": "x"}, [[[[[[]]]]]],
    "9999-12-31T23:59:59-14:00", "0001-01-01T00:00:00+14:00", "2026-13-01", "1e999",
    "pickle", "application/x-python-serialize", "zlib", "application/x-gzip", "utf-16", "binary",
    "no-such-codec", "base32", "../../etc/passwd", {"callbacks": [{"task": "workers.fence_host"}]},
)  # fmt: skip
_NAMES = (
    "timelimit", "eta", "expires", "retries", "chord", "compression", "stamps", "group",
    "redelivered", "reply_to", "task", "id", "args", "kwargs", "x", "", "\ud800",
)  # fmt: skip
_WHOLE = (
    b"", b"null", b"[]", b"{}", b"0", b"NaN", b'"\\ud800"', b"[" * 30_000, b'{"a":' * 6_000,
    b"1" * 30_000, b"-" * 100, b"\xff\xfe", b"\0" * 1_000, b"\x80\x04\x95", b"{" * 40_000,
    b'{"properties": {}}', b'{"body": null, "headers": null, "properties": null}',
    b'{"properties": {"delivery_tag": [], "delivery_info": 1}}', "[]".encode("utf-16"),
    b'{"properties": {"delivery_tag": "x", "delivery_info": {}}, "body": "%%%"}',
)  # fmt: skip


def a_message(task: str = "workers.read_console", row_id: UUID | None = None) -> dict[str, Any]:
    """Return what the control centre sends, caught on its way."""
    return copy.deepcopy(_caught(task, row_id or uuid7()))


@lru_cache(maxsize=100)
def _caught(task: str, row_id: UUID) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        settings = SharedSettings(state_dir=Path(folder), broker_url=None)
        app = Celery("sender", set_as_current=False)
        app.conf.update(celery_config(settings))
        app.send_task(task, args=[str(row_id)], ignore_result=True, expires=3600.0)
        [file] = (Path(folder) / "broker" / "messages").iterdir()
        found: dict[str, Any] = json.loads(file.read_bytes())
        return found


def with_header(name: str, value: object) -> bytes:
    message = copy.deepcopy(_A_MESSAGE)
    message["headers"][name] = value
    return json.dumps(message).encode()


_A_MESSAGE = a_message()


def strange_messages(seed: int) -> Iterator[bytes]:
    """Yield messages without end; the same seed yields the same, but for ids and times."""
    chance = random.Random(seed)
    makers = (_bytes, _whole, _bent, _bent, _bent, _body, _cut, _flipped, _compressed)
    while True:
        yield chance.choice(makers)(chance, copy.deepcopy(_A_MESSAGE))


def _written(message: Any) -> bytes:
    return json.dumps(message).encode()


def _bytes(chance: random.Random, _: dict[str, Any]) -> bytes:
    return chance.randbytes(chance.randrange(400))


def _whole(chance: random.Random, _: dict[str, Any]) -> bytes:
    return chance.choice(_WHOLE)


def _bent(chance: random.Random, message: dict[str, Any]) -> bytes:
    for _ in range(chance.randrange(1, 4)):
        place: Any = chance.choice(
            [
                message,
                message.get("headers"),
                message.get("properties"),
                (message.get("properties") or {}).get("delivery_info")
                if isinstance(message.get("properties"), dict)
                else None,
            ]
        )
        if not isinstance(place, dict):
            continue
        name = chance.choice([*place, *_NAMES])
        if chance.random() < 0.2:
            place.pop(name, None)
        else:
            place[name] = copy.deepcopy(chance.choice(_VALUES))
    return _written(message)


def _body(chance: random.Random, message: dict[str, Any]) -> bytes:
    body = json.loads(base64.b64decode(message["body"]))
    match chance.randrange(5):
        case 0:
            body[chance.randrange(3)] = chance.choice(_VALUES)
        case 1:
            body[0] = [chance.choice(_VALUES)]
        case 2:
            body[2][chance.choice(["chord", "callbacks", "chain", "x"])] = chance.choice(_VALUES)
        case 3:
            body = chance.choice(_VALUES)
        case _:
            body[0] *= chance.randrange(2, 5)
    text = json.dumps(body).encode()
    message["body"] = chance.choice(
        [base64.b64encode(text).decode(), text.decode(), base64.b64encode(text).decode()[:-1], 7]
    )
    message["properties"]["body_encoding"] = chance.choice(["base64", "utf-8", None, "rot13", 1])
    return _written(message)


def _cut(chance: random.Random, message: dict[str, Any]) -> bytes:
    content = _written(message)
    return content[: chance.randrange(len(content))]


def _flipped(chance: random.Random, message: dict[str, Any]) -> bytes:
    content = bytearray(_written(message))
    for _ in range(chance.randrange(1, 6)):
        content[chance.randrange(len(content))] = chance.randrange(256)
    return bytes(content)


def _compressed(chance: random.Random, message: dict[str, Any]) -> bytes:
    message["headers"]["compression"] = chance.choice(
        ["application/x-gzip", "zlib", "application/x-bz2", "bzip2", "no-such"]
    )
    if chance.random() < 0.05:
        message["body"] = base64.b64encode(_BOMB).decode()
    return _written(message)
