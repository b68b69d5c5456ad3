"""Google's trace of 2011: events of tasks as requests, of which each becomes one VM.

The table ``task_events`` has no line of names. A submission is a request of its
user; how long its VM lives is only known once the task has ended, so the table is
read to its end first, in eight numbers of eight bytes a submission.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from simulation.traces.bad_rows import RowError
from simulation.traces.native import Row
from simulation.traces.workload import LARGEST_CORES, LARGEST_MIB

COLUMNS: Final = (
    "time_us",
    "missing_info",
    "job_id",
    "task_index",
    "machine_id",
    "event",
    "user",
    "scheduling_class",
    "priority",
    "cpu_request",
    "memory_request",
    "disk_request",
    "different_machines",
)
_SUBMIT, _SCHEDULE = 0, 1
_ENDS: Final = frozenset({2, 3, 4, 5, 6})  #: evicted, failed, finished, killed, lost
_UPDATES: Final = frozenset({7, 8})  #: of a task's demand: the first event counts here
#: Stands for a time after the end of the trace.
_AFTER: Final = 2**63 - 1


def is_task_events(columns: tuple[str, ...]) -> bool:
    """Return whether a file without column names has the task events of Google's trace."""
    return len(columns) == len(COLUMNS) and columns[0].isdigit() and columns[5] in set("012345678")


def requests_of_tasks(rows: Iterable[Row]) -> Iterator[Row]:
    """Return the submitted tasks of Google's trace in order, as native rows with lifetimes.

    A life begins when the task is scheduled, or, where it never is, submitted; a
    task without an end never ends. A task that is submitted again is another
    request. Sizes are parts of the largest machine, as in the table of machines.
    """
    table = _Submissions()
    for line, row, read in rows:
        if isinstance(row, RowError):
            yield line, row, read
            continue
        try:
            table.record_event(line, row, read)
        except (ValueError, TypeError) as error:
            yield line, error if isinstance(error, RowError) else RowError(str(error)), read
    yield from table.requests()


class _Submissions:
    """The known facts of every submitted task, in flat columns."""

    def __init__(self) -> None:
        self._line, self._user, self._job = array("q"), array("q"), array("q")
        self._arrival, self._life, self._read = array("d"), array("d"), array("d")
        self._cpu, self._memory = array("q"), array("q")
        self._users: dict[str, int] = {}
        #: of tasks that have not ended: their submission, and since when they live
        self._open: dict[tuple[int, int], tuple[int, float]] = {}

    def record_event(self, line: int, row: Mapping[str, Any], read: float) -> None:
        """Record an event of a task: submitted, scheduled or ended."""
        at_us, event = int(row["time_us"]), int(row["event"])
        if at_us < 0:
            raise RowError(f"time_us: found {at_us}, expected 0 or more")
        at_s = math.inf if at_us == _AFTER else at_us / 1e6
        task = int(row["job_id"]), int(row["task_index"])
        if event in _ENDS:
            submission, since_s = self._open.pop(task, (-1, 0.0))
            if submission >= 0:
                self._life[submission] = at_s - since_s
        elif event == _SCHEDULE and task in self._open:
            self._open[task] = (self._open[task][0], at_s)
        elif event in (_SUBMIT, _SCHEDULE):  # one that is scheduled was submitted
            self._record_submission(line, row, read, at_s, task)
        elif event not in _UPDATES:
            raise RowError(f"event: found {event}, expected 0 to 8")

    def _record_submission(
        self, line: int, row: Mapping[str, Any], read: float, at_s: float, task: tuple[int, int]
    ) -> None:
        """Record a submitted task."""
        if math.isinf(at_s):
            raise RowError("time_us: submitted after the end of the trace")
        cpu, memory = _read_fraction(row, "cpu_request"), _read_fraction(row, "memory_request")
        self._open[task] = (len(self._line), at_s)
        self._line.append(line)
        self._arrival.append(at_s)
        self._life.append(math.inf)
        self._read.append(read)
        self._user.append(self._users.setdefault(str(row["user"]), len(self._users)))
        self._cpu.append(_round_up(cpu * LARGEST_CORES * 1000))
        self._memory.append(_round_up(memory * LARGEST_MIB))
        self._job.append(task[0] if str(row["different_machines"]) == "1" else -1)

    def requests(self) -> Iterator[Row]:
        """Yield the submitted tasks as rows of the native format."""
        users = list(self._users)
        for place, line in enumerate(self._line):
            life_s, job = self._life[place], self._job[place]
            row = {
                "arrival_s": self._arrival[place],
                "lifetime_s": None if math.isinf(life_s) else life_s,
                "tenant": users[self._user[place]],
                "cpu_milli": self._cpu[place],
                "memory_mib": self._memory[place],
                "anti_affinity": f"job-{job}" if job >= 0 else None,
            }
            yield line, row, self._read[place]


def _read_fraction(row: Mapping[str, Any], name: str) -> float:
    """Read a task's part of the largest machine, 0 to 1."""
    found = row[name]
    if found in (None, ""):
        raise RowError(f"{name}: missing")
    value = float(found)
    if not 0 <= value <= 1:
        raise RowError(f"{name}: found {found!r}, expected a part of the largest machine")
    return value


def _round_up(amount: float) -> int:
    """Return an amount as a whole number, rounded up; rounding errors aside."""
    return math.ceil(round(amount, 6))
