"""What can go wrong, one class per kind: how it is made, and how it ends."""

from __future__ import annotations

import contextlib
import itertools
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar

import redis

from lab.errors import LabError
from registry.work.queues import WorkQueue
from tests.chaos.site import LEASE_S, Site, SiteHost
from tests.servers.running import TimedOutError

_BACKLOG = 2_000
_AT_BROKER = tuple(queue.at_broker for queue in WorkQueue)


class Fault(ABC):
    """One fault. `inject` returns once it has its effect, `lift` once it is over.

    What heals by itself is not waited for: `healing` does that for all alike.
    """

    kind: ClassVar[str]
    strikes: ClassVar[tuple[str, ...]]  #: parts of the site; no two faults strike one at once

    def __init__(self, site: Site, rng: random.Random) -> None:
        self.site = site
        self.rng = rng
        #: Waits until metrics tell of what is noted; the run sets it.
        self.until_shown: Callable[[Mapping[str, Any]], None] = lambda _: None

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
    def inject(self) -> dict[str, Any]:
        self.name = self.choose()
        self.site.processes[self.name].kill()
        self.hold(0, 4)
        return {"process": self.name}

    def choose(self) -> str:
        return self.rng.choice(self.site.of_role(self.strikes[0]))

    def lift(self) -> None:
        self.site.processes[self.name].return_to_service()


class ApiKilled(_Killed):
    kind = "api killed"
    strikes = ("api",)


class WorkerKilled(_Killed):
    kind = "worker killed"
    strikes = ("worker",)


class MonitorKilled(_Killed):
    kind = "monitor killed"
    strikes = ("monitor",)


class LeaderKilled(_Killed):
    kind = "leader killed"
    strikes = ("control",)

    def inject(self) -> dict[str, Any]:
        epoch = self.site.epoch()
        return super().inject() | {"epoch": epoch}

    def choose(self) -> str:
        return self.site.eventually(self.site.leader)


class _Paused(Fault):
    def inject(self) -> dict[str, Any]:
        self.name = self.rng.choice(self.site.of_role(self.strikes[0]))
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


class LeaderPaused(Fault):
    """Wakes when another leads."""

    kind = "leader paused past its lease"
    strikes = ("control",)

    def inject(self) -> dict[str, Any]:
        self.name = self.site.eventually(self.site.leader)
        epoch = self.site.epoch()
        self.site.processes[self.name].pause()
        self.site.eventually(lambda: self.site.epoch() > epoch)
        return {"process": self.name, "epoch": epoch}

    def lift(self) -> None:
        self.site.processes[self.name].resume()


class _AtCheckpoint(Fault):
    """A process that is struck where it hurts, in the middle of its work."""

    variable: ClassVar[str]
    points: ClassVar[tuple[str, ...]]

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

    @abstractmethod
    def choose(self) -> str:
        """Return the process that is to be struck."""

    def alone(self) -> AbstractContextManager[None]:
        """Keep others from doing what it is to be struck at."""
        return contextlib.nullcontext()


class _WorkerAtCheckpoint(_AtCheckpoint):
    strikes = ("worker",)

    def choose(self) -> str:
        return self.rng.choice(self.site.of_role("worker"))

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


class WorkerStruck(_WorkerAtCheckpoint):
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


class WorkerStoppedInside(_WorkerAtCheckpoint):
    """Stopped in a build, and woken when another has taken over."""

    kind = "worker stopped inside a build, past its lease"
    variable = "FUGA_STOP_AT"
    points = ("create.after_define", "create.before_resume", "create.after_activate")

    def inject(self) -> dict[str, Any]:
        told = super().inject()
        self.process.wait_until_paused()
        owner = f"%:{self.process.pid}:%"
        self.site.eventually(
            lambda: (
                self.site.sql("SELECT count(*) FROM assignments WHERE claim_owner LIKE %s", owner)
                == [(0,)]
            ),
        )
        return told

    def lift(self) -> None:
        self.process.resume()


class LeaderStruck(_AtCheckpoint):
    kind = "leader killed after a commit"
    strikes = ("control",)
    variable = "FUGA_KILL_AT"
    points = ("round.after_commit",)

    def inject(self) -> dict[str, Any]:
        # The one that is started anew leads once the other is gone, too.
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


# ---- servers -------------------------------------------------------------------------


class BrokerKilled(Fault):
    kind = "redis killed"
    strikes = ("redis",)

    def inject(self) -> dict[str, Any]:
        self.site.broker.process.kill()
        self.hold(1, 6)
        return {}

    def lift(self) -> None:
        self.site.broker.start()


class BrokerStopped(Fault):
    """It takes connections and answers nobody: a send must not wait for it."""

    kind = "redis stopped"
    strikes = ("redis",)

    def inject(self) -> dict[str, Any]:
        self.site.broker.process.pause()
        self.hold(8, 20)
        return {}

    def lift(self) -> None:
        self.site.broker.process.resume()


class BrokerEmptied(Fault):
    kind = "redis emptied"
    strikes = ("redis",)

    def inject(self) -> dict[str, Any]:
        with self.site.broker.client() as client:
            for _ in range(self.rng.randint(3, 12)):
                client.flushall()
                self.hold(0.1, 0.4)
        return {}


class BrokerRestarted(Fault):
    kind = "redis restarted"
    strikes = ("redis",)

    def inject(self) -> dict[str, Any]:
        self.site.broker.process.close()
        return {}

    def lift(self) -> None:
        self.site.broker.start()


class DatabaseRestarted(Fault):
    kind = "postgresql restarted"
    strikes = ("postgresql",)
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


class DatabaseStopped(Fault):
    """The same, in the middle of whatever it was at; until everybody has given up on it."""

    kind = "postgresql stopped"
    strikes = ("postgresql",)

    def inject(self) -> dict[str, Any]:
        self.site.postgres.pause()
        self.hold(12, 25)
        return {}

    def lift(self) -> None:
        self.site.postgres.resume()


class Backlog(Fault):
    """Far more builds than workers can look at, before all that is due meanwhile."""

    kind = "backlog of builds"
    strikes = ("redis",)

    def inject(self) -> dict[str, Any]:
        rows = self.site.sql("SELECT id FROM assignments ORDER BY id DESC LIMIT 200")
        keys = [str(key) for (key,) in rows]
        for key in itertools.islice(itertools.cycle(keys), _BACKLOG):
            self.site.send("workers.create_vm", key)
        return {"tasks": _BACKLOG}


class TasksRepeated(Fault):
    """Every task that there could be, sent again, whether it makes sense or not."""

    kind = "tasks repeated"
    strikes = ("redis",)

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
    """Messages of every queue that nobody gets before they were sent again, then each twice."""

    kind = "tasks delayed"
    strikes = ("worker", "redis")

    def inject(self) -> dict[str, Any]:
        self.workers = [self.site.processes[name] for name in self.site.of_role("worker")]
        for worker in self.workers:
            worker.pause()
        with self.site.broker.client() as client:
            self.site.eventually(lambda: any(client.llen(name) for name in _AT_BROKER))
            self.hold(0, 3)
            self.kept = {name: _messages(client, name) for name in _AT_BROKER}
        self.until_shown({"kind": self.kind, "process": self.workers[0].name})
        self.lift()
        self.hold(4, 8)
        with self.site.broker.client() as client:
            for name, messages in self.kept.items():
                if messages:
                    client.lpush(name, *messages, *messages)
        return {
            "messages": sum(len(messages) for messages in self.kept.values()),
            "process": self.workers[0].name,
        }

    def lift(self) -> None:
        for worker in self.workers:
            worker.resume()


def _messages(client: redis.Redis, queue: str) -> list[bytes]:
    taken: list[bytes] = []
    while isinstance(message := client.lpop(queue), bytes):
        taken.append(message)
    return taken


# ---- hosts ---------------------------------------------------------------------------


class _OnHost(Fault):
    """Strikes a host; how far the monitor counts before it ends is drawn.

    One that is down and whose VMs are to be replaced stays struck until it was fenced.
    """

    strikes = ("host",)
    strike: ClassVar[str]
    mend: ClassVar[tuple[str, ...]]
    healths: ClassVar[tuple[str, ...]] = ("unreachable", "down")

    def inject(self) -> dict[str, Any]:
        self.host = self.rng.choice(self.hosts())
        until = self.rng.choice(self.healths)
        self.site.fault(self.host, self.strike)
        self.site.eventually(lambda: self.seen(until))
        told: dict[str, Any] = {"host": self.host.name, "until": until}
        if self.host.is_replaced and until == "down":
            self.site.eventually(lambda: self.site.is_fenced_or_empty(self.host))
            told["fenced"] = self.site.is_fenced(self.host)
        return told

    def hosts(self) -> list[SiteHost]:
        return self.site.hosts

    def seen(self, until: str) -> bool:
        rows = self.site.tried_sql("SELECT health FROM hosts WHERE name = %s", self.host.name)
        return rows in ([(until,)], [("down",)])

    def lift(self) -> None:
        self.site.mend(self.host, *self.mend)


class NetworkCut(_OnHost):
    kind = "network to a host cut"
    strike = "cut-network"
    mend = ("restore-network",)


class NetworkCutUntilFenced(NetworkCut):
    """Its guests run on, out of everybody's reach, until it is switched off."""

    kind = "network to a host cut until it is fenced"
    healths = ("down",)

    def hosts(self) -> list[SiteHost]:
        return [host for host in self.site.hosts if host.is_replaced]


class DaemonKilled(_OnHost):
    kind = "libvirtd killed"
    strike = "kill-daemon"
    mend = ("restart-daemon",)


class DaemonFrozen(_OnHost):
    kind = "libvirtd frozen"
    strike = "hang-daemon"
    mend = ("resume-daemon",)


class HostPowered(_OnHost):
    kind = "host powered off and on"
    strike = "power-off"

    def lift(self) -> None:
        self.site.start_hosts()


class GuestFrozen(Fault):
    kind = "qemu frozen"
    strikes = ("guest",)

    def inject(self) -> dict[str, Any]:
        host, self.guest = self.site.eventually(self.choose)
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
    strikes = ("pool",)

    def inject(self) -> dict[str, Any]:
        self.host = self.site.eventually(self.last_built_on)
        since = self.site.sql("SELECT coalesce(max(id), 0) FROM events")[0][0]
        self.site.fill_pool(self.host)
        try:
            self.site.eventually(
                lambda: self.site.sql(
                    "SELECT 1 FROM events WHERE id > %s AND kind = 'assignment_state' "
                    "AND event = 'failed' AND data ->> 'host' = %s "
                    "AND reason LIKE '%%space%%' LIMIT 1",
                    since,
                    self.host.name,
                ),
                within_s=40,
            )
        except TimedOutError:
            return {"host": self.host.name, "failed_builds": 0}
        return {"host": self.host.name, "failed_builds": 1}

    def last_built_on(self) -> SiteHost | None:
        """Return the host that a policy which fills one after another is likely to fill next."""
        rows = self.site.sql(
            "SELECT h.name FROM assignments a JOIN hosts h ON h.id = a.host_id"
            " ORDER BY a.id DESC LIMIT 1"
        )
        return next((each for each in self.site.hosts if [(each.name,)] == rows), None)

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
    BrokerStopped,
    BrokerEmptied,
    BrokerRestarted,
    DatabaseRestarted,
    DatabaseCrashed,
    DatabaseStopped,
    Backlog,
    TasksRepeated,
    TasksDelayed,
    NetworkCut,
    NetworkCutUntilFenced,
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


def batches(kinds: Sequence[type[Fault]], at_once: int) -> list[list[type[Fault]]]:
    """Put faults together that may strike at once: no two of them the same part of the site."""
    left, found = list(kinds), []
    while left:
        batch: list[type[Fault]] = []
        for kind in list(left):
            taken = {part for each in batch for part in each.strikes}
            if len(batch) < at_once and taken.isdisjoint(kind.strikes):
                batch.append(kind)
                left.remove(kind)
        found.append(batch)
    return found
