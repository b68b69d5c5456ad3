"""What strikes inside a move: either host in each way, the worker at it, the control centre,
the database.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tests.chaos.faults.fault import ChaosFault
from tests.chaos.faults.hosts import OnHost, PoweredOff
from tests.chaos.faults.processes import LeaderKilled, WorkerStoppedInside, WorkerStruck
from tests.chaos.faults.servers import DatabaseCrashed
from tests.chaos.processes import Managed

#: A guest whose memory or disk is on its way; who is at it tells so every two seconds.
_UNDER_WAY = (
    "SELECT m.id, a.name, b.name, m.lease_owner FROM moves m"
    " JOIN hosts a ON a.id = m.from_host_id JOIN hosts b ON b.id = m.to_host_id"
    " WHERE m.state = 'moving' AND m.kind = 'live' AND m.remaining_bytes > 0"
    " AND m.lease_until > clock_timestamp() ORDER BY m.id"
)


@dataclass(frozen=True)
class _UnderWay:
    id: str
    ends: dict[str, str]
    pid: int  #: of its worker


class _InsideMove(ChaosFault):
    """Strikes once a guest is on its way, what has to do with that move."""

    def under_way(self) -> _UnderWay:
        found = self.site.eventually(lambda: self.site.tried_sql(_UNDER_WAY), every_s=0.05)
        move, source, destination, owner = self.rng.choice(found)
        ends = {"source": source, "destination": destination}
        return _UnderWay(str(move), ends, int(owner.split(":")[1]))


# ---- hosts ---------------------------------------------------------------------------


class _EndOfMove(_InsideMove, OnHost):
    strikes = ("end of a move",)  # so that another host may be struck for another reason
    end: ClassVar[str]

    def choose(self) -> dict[str, Any]:
        return {"move": self.site.eventually(self._take).id}

    def _take(self) -> _UnderWay | None:
        move = self.under_way()
        host = self.site.take(move.ends[self.end], self)
        if host is None:
            return None
        self.host = host
        return move


class _DaemonKilled(_EndOfMove):
    strike = "kill-daemon"
    mend = ("restart-daemon",)


class SourceDaemonKilled(_DaemonKilled):
    kind = "source's libvirtd killed inside a move"
    end = "source"


class DestinationDaemonKilled(_DaemonKilled):
    kind = "destination's libvirtd killed inside a move"
    end = "destination"


class _DaemonFrozen(_EndOfMove):
    strike = "hang-daemon"
    mend = ("resume-daemon",)


class SourceDaemonFrozen(_DaemonFrozen):
    kind = "source's libvirtd frozen inside a move"
    end = "source"


class DestinationDaemonFrozen(_DaemonFrozen):
    kind = "destination's libvirtd frozen inside a move"
    end = "destination"


class _NetworkCut(_EndOfMove):
    strike = "cut-network"
    mend = ("restore-network",)


class SourceCut(_NetworkCut):
    kind = "source's network cut inside a move"
    end = "source"


class DestinationCut(_NetworkCut):
    kind = "destination's network cut inside a move"
    end = "destination"


class SourceOff(_EndOfMove, PoweredOff):
    kind = "source powered off inside a move"
    end = "source"


class DestinationOff(_EndOfMove, PoweredOff):
    kind = "destination powered off inside a move"
    end = "destination"


# ---- the worker ----------------------------------------------------------------------

_CLAIMED = "SELECT id, to_id FROM moves WHERE lease_owner LIKE %s"
_POINTS = ("move.after_volumes", "move.after_move", "move.after_look")


class WorkerStruckMoving(WorkerStruck):
    kind = "worker killed at a step of a move"
    points = _POINTS
    claimed = _CLAIMED


class WorkerStoppedMoving(WorkerStoppedInside):
    kind = "worker stopped at a step of a move"
    points = _POINTS
    claimed = _CLAIMED


class _WorkerOnTheWay(_InsideMove):
    """The one at a move, while its child has the guest on its way."""

    strikes = ("worker",)
    process: Managed

    def choose(self) -> dict[str, Any]:
        move = self.site.eventually(self._whose)
        return {"move": move.id, "process": self.process.name, "pid": self.process.pid}

    def held(self) -> dict[str, Any]:
        """Tell what it still held when it was struck: its move may have ended just then."""
        rows = self.site.sql(_CLAIMED, f"%:{self.process.pid}:%")
        return {"held": [str(key) for row in rows for key in row]}

    def _whose(self) -> _UnderWay | None:
        """Return a move whose worker lives; it may be in the claim of one that was killed."""
        move = self.under_way()
        workers = [self.site.processes[name] for name in self.site.of_role("worker")]
        found = [each for each in workers if each.running and each.pid == move.pid]
        if not found:
            return None
        (self.process,) = found
        return move


class WorkerKilledOnTheWay(_WorkerOnTheWay):
    kind = "worker killed with a guest on its way"

    def inject(self) -> dict[str, Any]:
        shown = self.choose()
        self.process.kill()
        shown |= self.held()
        self.hold(0, 4)
        return shown

    def lift(self) -> None:
        self.process.return_to_service()


class WorkerStoppedOnTheWay(_WorkerOnTheWay):
    """Its child goes on with the move, while another worker takes it over."""

    kind = "worker stopped with a guest on its way"

    def inject(self) -> dict[str, Any]:
        shown = self.choose()
        self.process.pause()
        shown |= self.held()
        owner = f"%:{self.process.pid}:%"
        self.site.eventually(lambda: not self.site.sql(_CLAIMED, owner))
        return shown

    def lift(self) -> None:
        self.process.resume()


# ---- who decides, and who remembers --------------------------------------------------


class LeaderKilledMoving(_InsideMove, LeaderKilled):
    kind = "leader killed inside a move"

    def inject(self) -> dict[str, Any]:
        move = self.under_way()
        return super().inject() | {"move": move.id}


class DatabaseCrashedMoving(_InsideMove, DatabaseCrashed):
    kind = "postgresql ended at once inside a move"

    def inject(self) -> dict[str, Any]:
        move = self.under_way()
        return super().inject() | {"move": move.id}


INSIDE_MOVES: tuple[type[ChaosFault], ...] = (
    SourceDaemonKilled,
    DestinationDaemonKilled,
    SourceDaemonFrozen,
    DestinationDaemonFrozen,
    SourceCut,
    DestinationCut,
    SourceOff,
    DestinationOff,
    WorkerStruckMoving,
    WorkerStoppedMoving,
    WorkerKilledOnTheWay,
    WorkerStoppedOnTheWay,
    LeaderKilledMoving,
    DatabaseCrashedMoving,
)
