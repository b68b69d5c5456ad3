"""Celery's filesystem broker for workers that survive any contents of its folder.

Kombu's transport creates a message file and then writes it. If the sender is killed in between, or
is slower than the reader, the file has no message, and kombu's reader ends the worker. This
transport drops such a file: the sweep sends its assignment again. It also drops everything else
that is not a short file with one of fuga's messages. It follows no links and waits for no pipes. A
worker takes a file by renaming it inside the broker's folder, so no two workers take the same file.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections import defaultdict, deque
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from queue import Empty
from typing import Any, Final
from uuid import uuid4

from kombu.transport import filesystem

from registry.db import private_folder
from service.broker.inbox import OPTION, Inbox, InboxChannel
from service.broker.messages import MAX_BYTES

#: Kombu's default of a second would be most of the time to create a VM.
_POLLING_INTERVAL_S: Final = 0.1

#: Maximum time until the worker's loop notices a request to end.
_LOOP_S: Final = 0.3

#: Celery's `broker_transport` for the filesystem broker.
TRANSPORT: Final = f"{__name__}:FilesystemTransport"


class FilesystemChannel(InboxChannel, filesystem.Channel):
    """Reads through the `Inbox`; sends as kombu does."""

    def __init__(self, connection: Any, **named: Any) -> None:
        super().__init__(connection, **named)  # type: ignore[no-untyped-call]  # kombu
        self.inbox = self.transport_options[OPTION]
        #: Listed files by queue that were not taken yet, so that not every read lists the folder.
        self._seen: defaultdict[str, deque[str]] = defaultdict(deque)

    def _get(self, queue: str, timeout: float | None = None) -> Any:
        """Return the next message of a queue that the inbox accepts, or raise `Empty`."""
        if queue not in self.inbox.readable_queues():
            raise Empty
        seen = self._seen[queue]
        if not seen:
            seen.extend(self._message_files(queue))
        while seen:
            content = self._take_message(seen.popleft())
            if (
                content is not None
                and (message := self.inbox.check_message(queue, content)) is not None
            ):
                return message
        raise Empty

    def _message_files(self, queue: str) -> list[str]:
        """Return the names of a queue's message files, the oldest first; [] without a folder."""
        try:
            names = [file.name for file in Path(self.data_folder_in).iterdir()]
        except OSError:  # the folder is gone; the next send raises the error
            return []
        # Names are <milliseconds>_<uuid>.<queue>.msg, and queues may hold dots.
        return sorted(name for name in names if name.partition(".")[2] == f"{queue}.msg")

    def _take_message(self, name: str) -> bytes | None:
        """Remove a message's file and return its content; None if it is no message."""
        taken = Path(self.processed_folder) / f"{uuid4()}.msg"
        try:
            (Path(self.data_folder_in) / name).rename(taken)
        except FileNotFoundError:
            return None  # another worker was faster
        except OSError as error:
            self.inbox.drop("not_a_file", f"{name}: {error.strerror}".encode(errors="replace"))
            return None
        try:
            return _read_short_file(taken)
        except OSError as error:
            self.inbox.drop("not_a_file", f"{name}: {error.strerror}".encode(errors="replace"))
            return None
        finally:
            _remove_file(taken)


def _read_short_file(path: Path) -> bytes:
    """Read a message's file up to a byte beyond the limit; raise OSError if it is none."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(0, "not a regular file")
        return file.read(MAX_BYTES + 1)


def _remove_file(path: Path) -> None:
    """Remove a file or folder that is no message, as far as possible."""
    with suppress(OSError):
        path.unlink()
        return
    shutil.rmtree(path, ignore_errors=True)


class FilesystemTransport(filesystem.Transport):
    """Kombu's filesystem transport with our `FilesystemChannel`."""

    Channel = FilesystemChannel

    def drain_events(self, connection: Any, timeout: Any = None, **kwargs: Any) -> Any:
        """Wait for events only briefly, so that the worker's loop handles signals."""
        inbox: Inbox = self.client.transport_options[OPTION]  # type: ignore[union-attr]  # kombu
        inbox.record_turn()
        timeout = min(timeout or _LOOP_S, _LOOP_S)
        return super().drain_events(connection, timeout)  # type: ignore[no-untyped-call]  # kombu


def filesystem_broker_config(options: Mapping[str, Any], inbox: Inbox) -> dict[str, Any]:
    """Return the Celery configuration of a worker with this broker."""
    taken = Path(options["data_folder_in"]).parent / "taken"
    private_folder(taken)
    return {
        "broker_transport": TRANSPORT,
        "broker_transport_options": {
            **options,
            "processed_folder": str(taken),
            "polling_interval": _POLLING_INTERVAL_S,
            OPTION: inbox,
        },
    }
