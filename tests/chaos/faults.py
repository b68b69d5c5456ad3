"""What can go wrong, one class per kind: how it is made, and how it ends."""

from __future__ import annotations

import contextlib
import json
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import redis

from lab.errors import LabError
from tests.chaos.processes import WAIT_S
from tests.chaos.site import LEASE_S, Site
from tests.running import TimedOutError, eventually


class Fault(ABC):
    """One fault. `inject` returns once it has its effect, `lift` once it is over.

    What heals by itself is not waited for: `healing` does that for all alike.
    """

    kind: ClassVar[str]

    def __init__(self, site: Site, rng: random.Random) -> None:
        self.site = site
        self.rng = rng

    @abstractmethod
    def inject(self) -> dict[str, Any]:
        """Make it happen; return what to note of it."""

    def lift(self) -> None:  # noqa: B027 - some are over at once
        """End it."""

    def hold(self, least_s: float, most_s: float) -> None:
        """Let it last: how long is part of the fault, nothing is waited for."""
        time.sleep(self.rng.uniform(least_s, most_s))


# ---- processes -----------------------------------------------------------------------


class _Killed(Fault):
    role: ClassVar[str]

    def inject(self) -> dict[str, Any]:
        self.name = self.choose()
        self.site.processes[self.name].kill()
        self.hold(0, 4)
        return {"process": self.name}

    def choose(self) -> str:
        return self.rng.choice(self.site.of_role(self.role))

    def lift(self) -> None:
        process = self.site.processes[self.name]
        process.start()
        process.wait_until_ready()


class ApiKilled(_Killed):
    kind = "api killed"
    role = "api"


class WorkerKilled(_Killed):
    kind = "worker killed"
    role = "worker"


class MonitorKilled(_Killed):
    kind = "monitor killed"
    role = "monitor"


class LeaderKilled(_Killed):
    kind = "leader killed"
    role = "control"

    def inject(self) -> dict[str, Any]:
        epoch = self.site.epoch()
        return super().inject() | {"epoch": epoch}

    def choose(self) -> str:
        return eventually(self.site.leader, within_s=WAIT_S)


class _Paused(Fault):
    role: ClassVar[str]

    def inject(self) -> dict[str, Any]:
        self.name = self.rng.choice(self.site.of_role(self.role))
        self.site.processes[self.name].pause()
        self.hold(LEASE_S + 1, LEASE_S + 4)
        return {"process": self.name}

    def lift(self) -> None:
        self.site.processes[self.name].resume()


class ApiPaused(_Paused):
    kind = "api paused"
    role = "api"


class WorkerPaused(_Paused):
    kind = "worker paused past its lease"
    role = "worker"


class MonitorPaused(_Paused):
    kind = "monitor paused"
    role = "monitor"


class LeaderPaused(Fault):
    """Wakes when another leads."""

    kind = "leader paused past its lease"

    def inject(self) -> dict[str, Any]:
        self.name = eventually(self.site.leader, within_s=WAIT_S)
        epoch = self.site.epoch()
        self.site.processes[self.name].pause()
        eventually(lambda: self.site.epoch() > epoch, within_s=WAIT_S)
        return {"process": self.name, "epoch": epoch}

    def lift(self) -> None:
        self.site.processes[self.name].resume()


class _AtCheckpoint(Fault):
    """A process that is struck where it hurts, in the middle of its work."""

    role: ClassVar[str]
    variable: ClassVar[str]
    points: ClassVar[tuple[str, ...]]

    def inject(self) -> dict[str, Any]:
        self.point = self.rng.choice(self.points)
        self.name = self.choose()
        self.process = self.site.processes[self.name]
        mark = self.site.folder / f"struck-{time.monotonic_ns()}"
        self.process.kill()
        self.process.start(**{self.variable: self.point, "FUGA_KILL_MARK": str(mark)})
        eventually(mark.exists, within_s=WAIT_S)
        held = self.site.sql(
            "SELECT id, vm_id FROM assignments WHERE claim_owner LIKE %s",
            f"%:{self.process.pid}:%",
        )
        return {
            "process": self.name,
            "point": self.point,
            "pid": self.process.pid,
            "held": [str(key) for pair in held for key in pair],
        }

    def choose(self) -> str:
        return self.rng.choice(self.site.of_role(self.role))


class WorkerStruck(_AtCheckpoint):
    kind = "worker killed inside a build or removal"
    role = "worker"
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
        eventually(lambda: not self.process.running, within_s=WAIT_S)
        return told

    def lift(self) -> None:
        self.process.start()
        self.process.wait_until_ready()


class WorkerStoppedInside(_AtCheckpoint):
    """Stopped in a build, and woken when another has taken over."""

    kind = "worker stopped inside a build, past its lease"
    role = "worker"
    variable = "FUGA_STOP_AT"
    points = ("create.after_define", "create.before_resume", "create.after_activate")

    def inject(self) -> dict[str, Any]:
        told = super().inject()
        self.process.wait_until_paused()
        owner = f"%:{self.process.pid}:%"
        eventually(
            lambda: (
                self.site.sql("SELECT count(*) FROM assignments WHERE claim_owner LIKE %s", owner)
                == [(0,)]
            ),
            within_s=WAIT_S,
        )
        return told

    def lift(self) -> None:
        self.process.resume()


class LeaderStruck(_AtCheckpoint):
    kind = "leader killed after a commit"
    role = "control"
    variable = "FUGA_KILL_AT"
    points = ("round.after_commit",)

    def inject(self) -> dict[str, Any]:
        # The one that is started anew leads once the other is gone, too.
        other = next(name for name in self.site.of_role("control") if name != self.choose())
        self.other = self.site.processes[other]
        self.other.kill()
        told = super().inject()
        eventually(lambda: not self.process.running, within_s=WAIT_S)
        return told

    def choose(self) -> str:
        return self.site.of_role("control")[0]

    def lift(self) -> None:
        for process in (self.process, self.other):
            process.start()
        for process in (self.process, self.other):
            process.wait_until_ready()


# ---- servers -------------------------------------------------------------------------


class BrokerKilled(Fault):
    kind = "redis killed"

    def inject(self) -> dict[str, Any]:
        self.site.broker.process.kill()
        self.hold(1, 6)
        return {}

    def lift(self) -> None:
        self.site.broker.start()


class BrokerEmptied(Fault):
    kind = "redis emptied"

    def inject(self) -> dict[str, Any]:
        with self.site.broker.client() as client:
            for _ in range(self.rng.randint(3, 12)):
                client.flushall()
                self.hold(0.1, 0.4)
        return {}


class BrokerRestarted(Fault):
    kind = "redis restarted"

    def inject(self) -> dict[str, Any]:
        self.site.broker.process.close()
        return {}

    def lift(self) -> None:
        self.site.broker.start()


class DatabaseRestarted(Fault):
    kind = "postgresql restarted"
    immediately: ClassVar[bool] = False

    def inject(self) -> dict[str, Any]:
        self.site.postgres.stop(immediately=self.immediately)
        self.hold(0, 5)
        return {}

    def lift(self) -> None:
        self.site.postgres.start()


class DatabaseCrashed(DatabaseRestarted):
    kind = "postgresql ended at once"
    immediately = True


class TasksRepeated(Fault):
    """Every task that there could be, sent again, whether it makes sense or not."""

    kind = "tasks repeated"

    def inject(self) -> dict[str, Any]:
        rows = self.site.sql("SELECT id, vm_id FROM assignments ORDER BY id DESC LIMIT 40")
        for assignment, vm in rows:
            for task, key in (
                ("workers.create_vm", assignment),
                ("workers.delete_vm", assignment),
                ("workers.switch_power", vm),
            ):
                self.site.send(task, str(key))
        return {"tasks": 3 * len(rows)}


class TasksDelayed(Fault):
    """Messages that nobody gets before they were sent again, then each twice.

    Without their time of expiry, which would have workers throw them away.
    """

    kind = "tasks delayed"

    def inject(self) -> dict[str, Any]:
        self.workers = [self.site.processes[name] for name in self.site.of_role("worker")]
        for worker in self.workers:
            worker.pause()
        with self.site.broker.client() as client:
            eventually(lambda: client.llen("fuga"), within_s=WAIT_S)
            self.hold(0, 3)
            self.kept = [_without_expiry(each) for each in _messages(client)]
        self.lift()
        self.hold(4, 8)
        with self.site.broker.client() as client:
            client.lpush("fuga", *self.kept, *self.kept)
        return {"messages": len(self.kept)}

    def lift(self) -> None:
        for worker in self.workers:
            worker.resume()


def _messages(client: redis.Redis) -> list[bytes]:
    taken: list[bytes] = []
    while isinstance(message := client.lpop("fuga"), bytes):
        taken.append(message)
    return taken


def _without_expiry(message: bytes) -> bytes:
    told = json.loads(message)
    told["headers"]["expires"] = None
    return json.dumps(told).encode()


# ---- hosts ---------------------------------------------------------------------------


class _OnHost(Fault):
    """Strikes a host; how far the monitor counts before it ends is drawn."""

    strike: ClassVar[str]
    mend: ClassVar[str]
    healths: ClassVar[tuple[str, ...]] = ("unreachable", "down")

    def inject(self) -> dict[str, Any]:
        self.host = self.rng.choice(self.site.hosts)
        self.until = self.rng.choice(self.healths)
        self.site.fault(self.host, self.strike)
        eventually(self.seen, within_s=WAIT_S)
        return {"host": self.host.name, "until": self.until}

    def seen(self) -> bool:
        rows = self.site.tried_sql("SELECT health FROM hosts WHERE name = %s", self.host.name)
        return rows in ([(self.until,)], [("down",)])

    def lift(self) -> None:
        self.site.fault(self.host, self.mend)


class NetworkCut(_OnHost):
    kind = "network to a host cut"
    strike = "cut-network"
    mend = "restore-network"


class DaemonKilled(_OnHost):
    kind = "libvirtd killed"
    strike = "kill-daemon"
    mend = "restart-daemon"


class DaemonFrozen(_OnHost):
    kind = "libvirtd frozen"
    strike = "hang-daemon"
    mend = "resume-daemon"


class HostPowered(_OnHost):
    kind = "host powered off and on"
    strike = "power-off"

    def lift(self) -> None:
        self.site.start_hosts()


class GuestFrozen(Fault):
    kind = "qemu frozen"

    def inject(self) -> dict[str, Any]:
        host, self.guest = eventually(self.choose, within_s=WAIT_S)
        self.host = next(each for each in self.site.hosts if each.name == host)
        self.hold(4, 10)
        return {"host": host, "domain": self.guest}

    def choose(self) -> tuple[str, str] | None:
        rows = self.site.sql(
            "SELECT h.name, v.id FROM vms v JOIN assignments a ON a.vm_id = v.id "
            "JOIN hosts h ON h.id = a.host_id WHERE a.state = 'active' "
            "AND v.observed = 'running' ORDER BY v.id"
        )
        if not rows:
            return None
        host, vm = self.rng.choice(rows)
        number = next(each for each in self.site.hosts if each.name == host)
        try:
            self.site.fault(number, "freeze-guest", f"fuga-{vm}")
        except LabError:
            return None  # it was deleted just now
        return str(host), f"fuga-{vm}"

    def lift(self) -> None:
        with contextlib.suppress(LabError):  # it was deleted meanwhile
            self.site.fault(self.host, "thaw-guest", self.guest)


class PoolFull(Fault):
    """Until a build failed there, or none was tried for a while."""

    kind = "pool full"

    def inject(self) -> dict[str, Any]:
        self.host = self.rng.choice(self.site.hosts)
        since = self.site.sql("SELECT coalesce(max(id), 0) FROM events")[0][0]
        self.site.fill_pool(self.host)
        try:
            eventually(
                lambda: self.site.sql(
                    "SELECT 1 FROM events WHERE id > %s AND kind = 'assignment_state' "
                    "AND event = 'failed' AND data ->> 'host' = %s LIMIT 1",
                    since,
                    self.host.name,
                ),
                within_s=40,
            )
        except TimedOutError:
            return {"host": self.host.name, "failed_builds": 0}
        return {"host": self.host.name, "failed_builds": 1}

    def lift(self) -> None:
        self.site.free_pool(self.host)


KINDS: tuple[type[Fault], ...] = (
    ApiKilled,
    WorkerKilled,
    MonitorKilled,
    LeaderKilled,
    ApiPaused,
    WorkerPaused,
    MonitorPaused,
    LeaderPaused,
    WorkerStruck,
    WorkerStoppedInside,
    LeaderStruck,
    BrokerKilled,
    BrokerEmptied,
    BrokerRestarted,
    DatabaseRestarted,
    DatabaseCrashed,
    TasksRepeated,
    TasksDelayed,
    NetworkCut,
    DaemonKilled,
    DaemonFrozen,
    HostPowered,
    GuestFrozen,
    PoolFull,
)


def schedule(count: int, seed: int, kinds: Sequence[type[Fault]] = KINDS) -> list[type[Fault]]:
    """So many kinds in an order drawn from a seed; each comes once before any comes again."""
    rng = random.Random(f"schedule {seed}")
    drawn: list[type[Fault]] = []
    while len(drawn) < count:
        drawn += rng.sample(kinds, len(kinds))
    return drawn[:count]
