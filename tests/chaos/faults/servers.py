"""Redis and PostgreSQL that die, hang or forget, and messages that come late, twice or too many."""

from __future__ import annotations

import itertools
from typing import Any, ClassVar

import redis

from registry.tasks.queues import WorkQueue
from tests.chaos.clock import STEP_S
from tests.chaos.faults.fault import ChaosFault
from tests.servers.small_disks import SmallDisk

_BACKLOG = 2_000
_AT_BROKER = tuple(queue.broker_name for queue in WorkQueue)


class BrokerKilled(ChaosFault):
    kind = "redis killed"
    strikes = ("redis",)

    def inject(self) -> dict[str, Any]:
        self.site.broker.process.kill()
        self.hold(1, 6)
        return {}

    def lift(self) -> None:
        self.site.broker.start()


class BrokerStopped(ChaosFault):
    """It takes connections and answers nobody: a send must not wait for it."""

    kind = "redis stopped"
    strikes = ("redis",)

    def inject(self) -> dict[str, Any]:
        self.site.broker.process.pause()
        self.hold(8, 20)
        return {}

    def lift(self) -> None:
        self.site.broker.process.resume()


class BrokerEmptied(ChaosFault):
    kind = "redis emptied"
    strikes = ("redis",)

    def inject(self) -> dict[str, Any]:
        with self.site.broker.client() as client:
            for _ in range(self.rng.randint(3, 12)):
                client.flushall()
                self.hold(0.1, 0.4)
        return {}


class BrokerRestarted(ChaosFault):
    kind = "redis restarted"
    strikes = ("redis",)

    def inject(self) -> dict[str, Any]:
        self.site.broker.process.close()
        return {}

    def lift(self) -> None:
        self.site.broker.start()


class DatabaseRestarted(ChaosFault):
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


class DatabaseStopped(ChaosFault):
    """The same, in the middle of whatever it was at; until everybody has given up on it."""

    kind = "postgresql stopped"
    strikes = ("postgresql",)

    def inject(self) -> dict[str, Any]:
        self.site.postgres.pause()
        self.hold(12, 25)
        return {}

    def lift(self) -> None:
        self.site.postgres.resume()


class DatabaseDiskFull(ChaosFault):
    """No byte is left for what PostgreSQL writes; it may end of that, and is started again."""

    kind = "disk of postgresql full"
    strikes = ("postgresql",)

    def inject(self) -> dict[str, Any]:
        SmallDisk(self.site.postgres.disk).fill()
        self.hold(10, 25)
        return {}

    def lift(self) -> None:
        SmallDisk(self.site.postgres.disk).free()
        if not self.site.postgres.running:
            self.site.postgres.start()
        self.site.postgres.wait_until_ready()


class StateDiskFull(ChaosFault):
    """No byte is left for logs, nor for what processes keep of themselves."""

    kind = "disk of logs and state full"
    strikes = ("state",)

    def inject(self) -> dict[str, Any]:
        SmallDisk(self.site.state).fill()
        self.hold(10, 25)
        return {}

    def lift(self) -> None:
        SmallDisk(self.site.state).free()


class DatabaseClockBack(ChaosFault):
    """Steps back by hours, and right again: leases end late, then all at once."""

    kind = "clock of postgresql stepped back"
    strikes = ("postgresql",)

    def inject(self) -> dict[str, Any]:
        self.site.postgres.set_clock_back(STEP_S)
        self.hold(15, 40)
        return {}

    def lift(self) -> None:
        self.site.postgres.set_clock_back(0)


class Backlog(ChaosFault):
    """Far more builds than workers can look at, before all that is due meanwhile."""

    kind = "backlog of builds"
    strikes = ("redis",)

    def inject(self) -> dict[str, Any]:
        rows = self.site.sql("SELECT id FROM assignments ORDER BY id DESC LIMIT 200")
        keys = [str(key) for (key,) in rows]
        for key in itertools.islice(itertools.cycle(keys), _BACKLOG):
            self.site.send("workers.create_vm", key)
        return {"tasks": _BACKLOG}


class TasksRepeated(ChaosFault):
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


class TasksDelayed(ChaosFault):
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
