"""Processor time of processes that a benchmark started, whatever else the machine does."""

from __future__ import annotations

import os
from pathlib import Path


def own_cpu_s(pid: int) -> float:
    """Return the processor time of a process so far, in seconds."""
    return sum(map(int, _fields(Path(f"/proc/{pid}/stat"))[11:13])) / _TICKS_PER_S


def family_cpu_s(pid: int) -> float:
    """Return the processor time of a process and its children, including ended ones."""
    ticks = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = _fields(path)
        except (FileNotFoundError, ProcessLookupError):
            continue  # it ended just now
        if pid in (int(path.parent.name), int(fields[1])):
            ticks += sum(map(int, fields[11:15]))  # user, system, and of children waited for
    return ticks / _TICKS_PER_S


def descendants_cpu_s(pid: int) -> float:
    """Return the processor time of a process and all descendants, including ended ones."""
    ticks: dict[int, int] = {}
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = _fields(path)
        except (FileNotFoundError, ProcessLookupError):
            continue  # it ended just now
        number = int(path.parent.name)
        ticks[number] = sum(map(int, fields[11:15]))
        children.setdefault(int(fields[1]), []).append(number)
    total, below = 0, [pid]
    while below:
        number = below.pop()
        total += ticks.get(number, 0)
        below += children.get(number, [])
    return total / _TICKS_PER_S


def _fields(path: Path) -> list[str]:
    """Return the fields after the process name, which may contain any character."""
    return path.read_text().rpartition(")")[2].split()


_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
