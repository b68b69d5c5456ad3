"""Hears all the while what guests say of themselves, whoever runs them."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from tests.chaos import guests
from tests.chaos.processes import WAIT_S
from tests.chaos.record import Record

_EVERY_S = 1.0
_NAME = re.compile(r"fuga-([0-9a-f-]{36})\.serial")
#: Passes after a boot was first heard, in which what an earlier one said may still come in.
_LATE = 2


@dataclass
class _Log:
    """What one host writes of one console; read to its end also once its file is removed."""

    vm: str
    host: str
    file: BinaryIO
    inode: int
    rest: bytes = b""

    def read(self) -> bytes:
        """Return the lines that are whole by now."""
        content = self.rest + self.file.read()
        whole, newline, self.rest = content.rpartition(b"\n")
        return whole + newline


@dataclass
class _Boot:
    """One start of a guest: the numbers that it said, and where."""

    vm: str
    first_pass: int
    hosts: dict[int, str] = field(default_factory=dict)  #: by number
    counted_at: float = 0.0  #: no later than the last number was said


class Ears:
    """Notes what each boot counted, what disks refused, and signs that a guest runs twice.

    Such a sign is a number that was said twice, or a boot that goes on after the next one began.
    A number of a volume that was said twice is a sign that two guests had it.
    """

    def __init__(self, folders: Mapping[str, Path], record: Record) -> None:
        self._folders = folders  #: by host: where it writes what consoles say
        self._record = record
        self._logs: dict[Path, _Log] = {}
        self._boots: dict[str, _Boot] = {}
        self._passes = 0
        self._last_began_at = time.time()
        self.heard = 0  #: numbers
        self.heard_of_volumes = 0  #: numbers, too
        self._volumes: dict[str, dict[int, str]] = {}  #: by serial number: who said which number
        self.refused = 0  #: counts that a guest's disk did not take at once
        self.stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ears", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """Hear what there is, and note what each boot counted."""
        self.stop.set()
        self._thread.join(WAIT_S)
        self.listen()
        for key, boot in self._boots.items():
            self._record.write(
                "counted",
                vm=boot.vm,
                boot=key,
                numbers=sorted(boot.hosts),
                counted_at=boot.counted_at,
            )
        for serial, numbers in self._volumes.items():
            self._record.write("volume counted", serial=serial, numbers=sorted(numbers))

    def _run(self) -> None:
        while not self.stop.wait(_EVERY_S):
            self.listen()

    def listen(self) -> None:
        """Read what was written since the last pass."""
        began_at = time.time()
        self._passes += 1
        for log in self._open_logs():
            lines = log.read()
            for boot, number in guests.said(lines):
                self._hear(log, boot, number)
            for serial, number in guests.said_of_volumes(lines):
                self._hear_of_volume(log, serial, number)
            for serial in guests.dirty(lines):
                self._note_volume_fault("dirty volume", serial, f"VM {log.vm} found it so")
            for said in guests.refused(lines):
                self.refused += 1
                self._record.write("refused", vm=log.vm, host=log.host, said=said)
        self._last_began_at = began_at

    def _open_logs(self) -> Iterator[_Log]:
        found = {
            path: (host, match[1])
            for host, folder in self._folders.items()
            for path in (folder.iterdir() if folder.is_dir() else ())
            if (match := _NAME.fullmatch(path.name))
        }
        for path, (host, vm) in found.items():
            try:
                inode = path.stat().st_ino
                known = self._logs.get(path)
                if known is not None and known.inode != inode:
                    yield known  # removed, and started over
                    known.file.close()
                if known is None or known.inode != inode:
                    file = path.open("rb")
                    self._logs[path] = _Log(vm, host, file, os.fstat(file.fileno()).st_ino)
            except FileNotFoundError:
                continue  # removed just now
        for path, log in list(self._logs.items()):
            yield log
            if path not in found:
                log.file.close()
                del self._logs[path]

    def _hear(self, log: _Log, key: str, number: int) -> None:
        self.heard += 1
        boot = self._boots.setdefault(key, _Boot(log.vm, self._passes))
        where = boot.hosts.get(number)
        if where is not None:
            self._tell(log, [where, log.host], f"said {number} twice in boot {key}")
        for later in self._boots.values():
            if later.vm == boot.vm and boot.first_pass < later.first_pass < self._passes - _LATE:
                there = next(iter(later.hosts.values()))
                self._tell(log, [there, log.host], f"boot {key} goes on after the next one began")
        boot.hosts[number] = log.host
        boot.counted_at = self._last_began_at

    def _hear_of_volume(self, log: _Log, serial: str, number: int) -> None:
        self.heard_of_volumes += 1
        numbers = self._volumes.setdefault(serial, {})
        if number in numbers:
            what = f"VMs {numbers[number]} and {log.vm} both wrote {number}"
            self._note_volume_fault("volume written twice", serial, what)
        numbers[number] = log.vm

    def _note_volume_fault(self, fault: str, serial: str, said: str) -> None:
        self._record.write("volume fault", fault=fault, serial=serial, said=said)

    def _tell(self, log: _Log, hosts: list[str], said: str) -> None:
        self._record.write("twice", vm=log.vm, hosts=hosts, said=said)
