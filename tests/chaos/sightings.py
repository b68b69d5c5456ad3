"""Watches all the while whether a VM runs on two hosts at once."""

from __future__ import annotations

import threading

from tests.chaos import look
from tests.chaos.processes import WAIT_S
from tests.chaos.tenants import Record

_EVERY_S = 1.0


class Watch:
    """Looks at the emulators of the machine, past libvirt; asks libvirt about what looks wrong.

    A VM may have two domains for a moment: one started and paused by a worker that lost
    its claim. Two that run, seen twice, are one too many.
    """

    def __init__(self, uris: list[str], record: Record) -> None:
        self._uris = uris
        self._record = record
        self.stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self.looks = 0
        self.most_guests = 0

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self.stop.set()
        self._thread.join(WAIT_S)

    def _run(self) -> None:
        while not self.stop.wait(_EVERY_S):
            seen = look.emulators()
            self.looks += 1
            self.most_guests = max(self.most_guests, len(seen))
            for vm, places in seen.items():
                if len(places) > 1:
                    self._look_closely(vm)

    def _look_closely(self, vm: str) -> None:
        first, second = (look.runs_on(self._uris, vm) for _ in range(2))
        both = [uri for uri in first if uri in second]
        if len(both) > 1:
            self._record.write("twice", vm=vm, hosts=both)
