"""Celery's filesystem broker, read by workers that survive a half-written message.

Kombu's transport creates a message file and then writes it. A sender killed in
between, or merely slower than a worker that looks at once, leaves a file without
a message in it, and kombu's reader ends the worker over it. Here such a file is
dropped: the sweep sends its assignment again. Files are taken by a rename inside
the broker's own folder, so two workers cannot take one, and a taken message
never crosses to another file system.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from queue import Empty
from typing import Any, Final

import structlog
from kombu.transport import filesystem

log: Final = structlog.get_logger(__name__)

#: Kombu's default of a second would be most of what a person waits for a VM.
_POLLING_INTERVAL_S: Final = 0.1

#: How long the worker's loop may not see that it was told to end.
_LOOP_S: Final = 0.3

#: What `broker_transport` of a worker is set to when its broker is the filesystem.
TRANSPORT: Final = f"{__name__}:Transport"


class Channel(filesystem.Channel):
    """The reading half made tolerant; sending and binding stay kombu's."""

    def _get(self, queue: str, timeout: float | None = None) -> Any:
        folder = Path(self.data_folder_in)
        taken_folder = Path(self.processed_folder)
        for file in sorted(folder.glob(f"*.{queue}.msg")):
            # Names are <milliseconds>_<uuid>.<queue>.msg, and queues may hold dots.
            if file.name.partition(".")[2] != f"{queue}.msg":
                continue
            taken = taken_folder / file.name
            try:
                file.rename(taken)
            except FileNotFoundError:
                continue  # another worker was faster
            text = taken.read_text(encoding="utf-8", errors="replace")
            taken.unlink()
            try:
                return json.loads(text)
            except ValueError:
                log.warning("message_dropped", file=file.name, bytes=len(text))
        raise Empty


class Transport(filesystem.Transport):
    """Kombu's filesystem transport with our `Channel`."""

    Channel = Channel

    def drain_events(self, connection: Any, timeout: Any = None, **kwargs: Any) -> Any:
        """Return to the worker's loop soon enough that a signal does not wait for it."""
        timeout = min(timeout or _LOOP_S, _LOOP_S)
        return super().drain_events(connection, timeout)  # type: ignore[no-untyped-call]  # kombu


def reading_the_filesystem(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a worker's Celery configuration needs to read this broker our way."""
    taken = Path(options["data_folder_in"]).parent / "taken"
    taken.mkdir(parents=True, exist_ok=True)
    return {
        "broker_transport": TRANSPORT,
        "broker_transport_options": {
            **options,
            "processed_folder": str(taken),
            "polling_interval": _POLLING_INTERVAL_S,
        },
    }
