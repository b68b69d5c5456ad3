"""Reads the metrics of every process all the while, as Prometheus would, and notes what changes."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx

from tests.chaos import signs
from tests.chaos.processes import WAIT_S
from tests.chaos.record import Record
from tests.servers.running import TimedOutError, eventually

_EVERY_S = 1.0
_PATIENCE_S = 5.0
SHOWN_S = 240.0  #: a fault that no metrics tell of lasts so long
_STARTED = "process_start_time_seconds"
_SAMPLE = re.compile(
    rf"^((?:{'|'.join((*signs.FAMILIES, _STARTED))})(?:\{{[^}}]*\}})?) (\S+)$", re.M
)


class Scrapes:
    """What a process told last: nothing, or when it started, whether it is ready, its counts."""

    def __init__(self, sockets: dict[str, Path], record: Record) -> None:
        self._record = record
        self._told: dict[str, dict[str, Any]] = {}
        self._reading = signs.Reading()
        self._shown: list[str] = []
        self._lock = threading.Lock()
        self._clients = {
            name: httpx.Client(
                transport=httpx.HTTPTransport(uds=str(path)),
                base_url="http://process",
                timeout=_PATIENCE_S,
            )
            for name, path in sockets.items()
        }
        self._passes = dict.fromkeys(sockets, 0)
        self.stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(name,), name=f"scrape {name}", daemon=True)
            for name in sockets
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def catch_up(self) -> None:
        """Return once what every process tells now is noted."""
        begun = {name: passes + 1 for name, passes in self._passes.items()}
        eventually(
            lambda: all(self._passes[name] > passes for name, passes in begun.items()),
            within_s=WAIT_S,
        )

    def mark(self) -> int:
        """Return a place in what was shown, to look at what comes after it."""
        return len(self._shown)

    def wait_until_shown(self, fault: Mapping[str, Any], since: int) -> None:
        """Let a fault last until metrics tell of it, or too long."""
        with contextlib.suppress(TimedOutError):
            eventually(
                lambda: self.stop.is_set() or not signs.missing_yet(fault, self._shown[since:]),
                within_s=SHOWN_S,
            )

    def end(self) -> None:
        self.stop.set()
        for thread in self._threads:
            thread.join(WAIT_S)
        for client in self._clients.values():
            client.close()

    def _run(self, name: str) -> None:
        while not self.stop.wait(_EVERY_S):
            shown = _scraped(self._clients[name])
            if shown != self._told.get(name):
                self._told[name] = shown
                with self._lock:  # the record has them in the order in which they were looked at
                    self._record.write("scrape", process=name, **shown)
                    self._shown += self._reading.note(name, shown)
            self._passes[name] += 1


def _scraped(client: httpx.Client) -> dict[str, Any]:
    try:
        ready = client.get("/readyz").status_code == 200
        found = _SAMPLE.findall(client.get("/metrics").text)
    except httpx.HTTPError:
        return {"answers": False}
    samples = {name: float(value) for name, value in found}
    return {
        "answers": True,
        "ready": ready,
        "started": samples.pop(_STARTED, None),
        "samples": samples,
    }
