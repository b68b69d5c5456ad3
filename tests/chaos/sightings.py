"""Watches all the while whether a VM runs on two hosts at once."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

from tests.chaos import look
from tests.chaos.processes import WAIT_S
from tests.chaos.record import Record
from tests.chaos.site import SiteHost

_EVERY_S = 1.0


class Watch:
    """Looks at the emulators of the machine, past libvirt; asks libvirt about what looks wrong.

    A VM may have two domains for a while: one that arrives, paused until the other has left; or
    one started and paused by a worker that lost its claim. Two that run, seen twice, are one
    too many.
    """

    def __init__(self, hosts: Sequence[SiteHost], record: Record) -> None:
        self._hosts = hosts
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
                    self._look_closely(vm, places)

    def _look_closely(self, vm: str, places: Mapping[str, int]) -> None:
        spaces = {look.namespace(host.pid_file): host for host in self._hosts}
        # The youngest first: it is the one that arrives, and mostly answers all.
        order = sorted(places, key=places.__getitem__, reverse=True)
        hosts = [spaces[each] for each in order if each in spaces]
        if len(hosts) > 1 and all(look.runs_on(host.eyes, vm) for host in 2 * hosts):
            self._record.write("twice", vm=vm, hosts=[host.name for host in hosts])
