"""What each phase of a round takes: by the clock, and of the processor in every process of it."""

from __future__ import annotations

import os
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import InitVar, dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from sqlalchemy import Engine, event

from controller.rounds.policy_process import Ideal, PolicyAnswer, PolicyProcess
from registry import Registry
from registry.rounds import ClusterView, CommittedRound, Lease, RoundCommit

T = TypeVar("T")
PHASES: Final = ("read", "solve", "check", "bound", "commit", "record")
#: Statements of a commit that write what was decided and why, not what is so.
_RECORD: Final = re.compile(
    r"\s*(INSERT INTO (rounds|round_inputs|events)\b|UPDATE requests SET waiting)"
)


@dataclass(slots=True)
class PhaseSeconds:
    """Seconds of a phase."""

    clock: float = 0.0
    ours: float = 0.0  #: of the processor, in the control centre and its policy's process
    database: float = 0.0  #: of the processor, in PostgreSQL

    @property
    def processor(self) -> float:
        return self.ours + self.database


@dataclass
class Meter:
    """A meter that adds elapsed and processor time to the current phase."""

    postmaster: InitVar[int]
    taken: dict[str, PhaseSeconds] = field(default_factory=lambda: defaultdict(PhaseSeconds))
    _phase: str | None = None
    _last: tuple[float, float, float] = (0.0, 0.0, 0.0)

    def __post_init__(self, postmaster: int) -> None:
        self._policy = _Children(os.getpid())
        self._database = _Children(postmaster)

    def switch(self, phase: str | None) -> str | None:
        """Begin a phase and end the previous one; return the previous phase."""
        now = (
            time.perf_counter(),
            time.process_time() + self._policy.seconds(),
            self._database.seconds(),
        )
        before = self._phase
        if before is not None:
            taken = self.taken[before]
            taken.clock += now[0] - self._last[0]
            taken.ours += now[1] - self._last[1]
            taken.database += now[2] - self._last[2]
        self._phase, self._last = phase, now
        return before

    @contextmanager
    def measuring(self, phase: str) -> Iterator[None]:
        """Measure the block, which begins in ``phase``; the record of a commit counts apart."""
        stack: list[str | None] = []

        def before(_: Any, __: Any, statement: str, *___: Any) -> None:
            stack.append(self.switch("record") if _RECORD.match(statement) else None)

        def after(*_: Any) -> None:
            previous = stack.pop()
            if previous is not None:
                self.switch(previous)

        event.listen(Engine, "before_cursor_execute", before)
        event.listen(Engine, "after_cursor_execute", after)
        self.taken.clear()
        self.switch(phase)
        try:
            yield
        finally:
            self.switch(None)
            event.remove(Engine, "before_cursor_execute", before)
            event.remove(Engine, "after_cursor_execute", after)


@dataclass(frozen=True)
class MeteredStore:
    """The register center as a round sees it; tells the meter where the round is.

    What comes between is counted too: rows to arrays and the encoding of
    inputs with the read, the reasons of who waits with the record.
    """

    registry: Registry
    meter: Meter

    def read_cluster(self, lease: Lease) -> ClusterView:
        self.meter.switch("read")
        return self.registry.rounds.read_cluster(lease)

    def commit_round(self, commit: RoundCommit) -> CommittedRound:
        return self._then("commit", lambda: self.registry.rounds.commit_round(commit), "record")

    def _then(self, phase: str, work: Callable[[], T], after: str) -> T:
        self.meter.switch(phase)
        done = work()
        self.meter.switch(after)
        return done


@dataclass(frozen=True)
class MeteredDecider:
    """The policy's process; tells the meter likewise."""

    process: PolicyProcess
    meter: Meter

    def decide(self, data: bytes, *, policy: str, deadline_s: float) -> PolicyAnswer:
        self.meter.switch("solve")
        decision = self.process.decide(data, policy=policy, deadline_s=deadline_s)
        self.meter.switch("check")
        return decision

    def ideal(self, data: bytes, *, resource: int, deadline_s: float) -> Ideal:
        self.meter.switch("bound")
        ideal = self.process.ideal(data, resource=resource, deadline_s=deadline_s)
        self.meter.switch("record")
        return ideal


class _Children:
    """The processor time of the child processes of a process.

    Those that end take what they had with them, so it is added up as it grows.
    """

    def __init__(self, parent: int) -> None:
        self._parent = Path(f"/proc/{parent}/task/{parent}/children")
        self._had: dict[str, int] = {}
        self._seconds = 0.0

    def seconds(self) -> float:
        """Return the processor time in seconds since the first reading."""
        now: dict[str, int] = {}
        for child in self._parent.read_text().split():
            with suppress(FileNotFoundError, ProcessLookupError):  # it has ended
                now[child] = sum(
                    int((thread / "schedstat").read_text().split()[0])
                    for thread in Path(f"/proc/{child}/task").iterdir()
                )
        grown = (ns - self._had.get(child, 0) for child, ns in now.items())
        self._seconds += sum(max(0, each) for each in grown) / 1e9
        self._had = now
        return self._seconds
