"""Processes of fuga that are killed, paused, or struck at a step of their work."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any, ClassVar

from tests.chaos.faults.fault import ChaosFault
from tests.chaos.site import LEASE_S


class _OfAProcess(ChaosFault):
    def choose(self) -> str:
        """Return the process that is to be struck."""
        return self.rng.choice(self.site.of_role(self.strikes[0]))


class Killed(_OfAProcess):
    def inject(self) -> dict[str, Any]:
        self.name = self.choose()
        self.site.processes[self.name].kill()
        self.hold(0, 4)
        return {"process": self.name}

    def lift(self) -> None:
        self.site.processes[self.name].return_to_service()


class ApiKilled(Killed):
    kind = "api killed"
    strikes = ("api",)


class WorkerKilled(Killed):
    kind = "worker killed"
    strikes = ("worker",)


class MonitorKilled(Killed):
    kind = "monitor killed"
    strikes = ("monitor",)


class LeaderKilled(Killed):
    kind = "leader killed"
    strikes = ("control",)

    def inject(self) -> dict[str, Any]:
        epoch = self.site.epoch()
        return super().inject() | {"epoch": epoch}

    def choose(self) -> str:
        return self.site.eventually(self.site.leader)


class _Paused(_OfAProcess):
    def inject(self) -> dict[str, Any]:
        self.name = self.choose()
        self.site.processes[self.name].pause()
        self.hold(LEASE_S + 1, LEASE_S + 4)
        return {"process": self.name}

    def lift(self) -> None:
        self.site.processes[self.name].resume()


class ApiPaused(_Paused):
    kind = "api paused"
    strikes = ("api",)


class WorkerPaused(_Paused):
    kind = "worker paused past its lease"
    strikes = ("worker",)


class MonitorPaused(_Paused):
    kind = "monitor paused"
    strikes = ("monitor",)


class LeaderPaused(_Paused):
    """Wakes when another leads."""

    kind = "leader paused past its lease"
    strikes = ("control",)

    def inject(self) -> dict[str, Any]:
        self.name = self.choose()
        epoch = self.site.epoch()
        self.site.processes[self.name].pause()
        self.site.eventually(lambda: self.site.epoch() > epoch)
        return {"process": self.name, "epoch": epoch}

    def choose(self) -> str:
        return self.site.eventually(self.site.leader)


class AtCheckpoint(_OfAProcess):
    """A process that is struck where it hurts, in the middle of its work."""

    variable: ClassVar[str]
    points: ClassVar[tuple[str, ...]]
    #: What an owner holds, of which others tell once they have it.
    claimed: ClassVar[str] = "SELECT id, vm_id FROM assignments WHERE lease_owner LIKE %s"

    def inject(self) -> dict[str, Any]:
        self.point = self.rng.choice(self.points)
        self.name = self.choose()
        self.process = self.site.processes[self.name]
        mark = self.site.folder / f"struck-{time.monotonic_ns()}"
        self.process.kill()
        env = {self.variable: self.point, "FUGA_KILL_MARK": str(mark)}
        self.process.start(**env)

        def begun() -> bool:
            has_ended = not self.process.running
            if has_ended and not mark.exists():
                self.process.start_again_without_database(**env)
            return mark.exists() or self.process.is_ready

        self.site.eventually(begun)
        with self.alone():
            self.site.eventually(mark.exists)
        held = self.site.sql(self.claimed, f"%:{self.process.pid}:%")
        return {
            "process": self.name,
            "point": self.point,
            "pid": self.process.pid,
            "held": [str(key) for pair in held for key in pair],
        }

    def alone(self) -> AbstractContextManager[None]:
        """Keep others from doing what it is to be struck at."""
        return contextlib.nullcontext()


class WorkerAtCheckpoint(AtCheckpoint):
    strikes = ("worker",)

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        others = [self.site.processes[name] for name in self.site.of_role("worker")]
        others.remove(self.process)
        for each in others:
            each.pause()
        try:
            yield
        finally:
            for each in others:
                each.resume()


class WorkerStruck(WorkerAtCheckpoint):
    kind = "worker killed inside a build or removal"
    variable = "FUGA_KILL_AT"
    points = (
        "create.after_volume",
        "create.after_define",
        "create.before_resume",
        "create.after_activate",
        "delete.after_destroy",
    )

    def inject(self) -> dict[str, Any]:
        told = super().inject()
        self.site.eventually(lambda: not self.process.running)
        return told

    def lift(self) -> None:
        self.process.return_to_service()


class WorkerStoppedInside(WorkerAtCheckpoint):
    """Stopped in a build, and woken when another has taken over."""

    kind = "worker stopped inside a build, past its lease"
    variable = "FUGA_STOP_AT"
    points = ("create.after_define", "create.before_resume", "create.after_activate")

    def inject(self) -> dict[str, Any]:
        told = super().inject()
        self.process.wait_until_paused()
        owner = f"%:{self.process.pid}:%"
        self.site.eventually(lambda: not self.site.sql(self.claimed, owner))
        return told

    def lift(self) -> None:
        self.process.resume()


_VOLUME_POINTS = ("volumes.after_creating", "volumes.after_attaching", "volumes.after_detaching")
_CLAIMED_VOLUMES = "SELECT id, vm_id FROM volumes WHERE lease_owner LIKE %s"


class WorkerStruckAtVolume(WorkerStruck):
    kind = "worker killed at a step of a volume"
    points = _VOLUME_POINTS
    claimed = _CLAIMED_VOLUMES


class WorkerStoppedAtVolume(WorkerStoppedInside):
    kind = "worker stopped at a step of a volume"
    points = _VOLUME_POINTS
    claimed = _CLAIMED_VOLUMES


class LeaderStruck(AtCheckpoint):
    kind = "leader killed after a commit"
    strikes = ("control",)
    variable = "FUGA_KILL_AT"
    points = ("round.after_commit",)

    def inject(self) -> dict[str, Any]:
        # The one that is restarted leads once the other is gone, too.
        other = next(name for name in self.site.of_role("control") if name != self.choose())
        self.other = self.site.processes[other]
        self.other.kill()
        told = super().inject()
        self.site.eventually(lambda: not self.process.running)
        return told

    def choose(self) -> str:
        return self.site.of_role("control")[0]

    def lift(self) -> None:
        for process in (self.process, self.other):
            process.return_to_service()
