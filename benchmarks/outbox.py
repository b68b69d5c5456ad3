"""Print how long urgent work takes while builds wait, and what builds lose to a backlog.

    python -m benchmarks.outbox [--builds 100,2000] [--seconds 30] [--concurrency 4]
        [--fences 20]

A PostgreSQL (fsync on) and a Redis of its own, the sweep of a control centre and one worker
process, whose hosts are stand-ins that take 2 s for each build. First as many builds wait as
the first number says, then more are requested, up to the next: ``builds/s`` is what was built
in between, ``ratio`` that against the first. With the last number waiting, a VM is stopped,
one deleted, a console read and a host fenced: ``s`` is from the call until the register
says that it is done. ``messages`` is the most that lay in the queue of builds. Last, ``--fences``
hosts are fenced by a command that takes a minute, and a VM is stopped again.
"""

from __future__ import annotations

import logging
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import structlog
from pydantic import SecretStr

from benchmarks.kit import a_register, parser, unless
from controller.control_center.dispatch import Dispatcher
from controller.queries.consoles import read_console
from controller.worker_queue import CeleryQueue
from registry import Registry, VmDesiredEvent, VmObserved
from registry.hosts import Host
from registry.rounds import Placement
from registry.tasks import WorkQueue
from service.settings import SharedSettings
from tests.chaos.processes import Managed, inherited
from tests.raw_sql import RawSql, raw_sql
from tests.register import (
    ACTOR,
    a_commit,
    add_host,
    add_request,
    add_tenant,
    add_vm_type,
    take_lease,
)
from tests.servers.postgres import why_not
from tests.servers.redis_server import redis_server
from tests.servers.running import eventually

WARM_UP_S: Final = 10.0
PATIENCE_S: Final = 120.0
_PER_HOST: Final = 8
_URI: Final = "qemu+tcp://{name}.test/system"


@unless(why_not)
def main(argv: Sequence[str] | None = None) -> None:
    given = parser(
        __doc__,
        builds=([100, 2000], "how many wait, commas between"),
        seconds=(30.0, "of each measurement"),
        concurrency=(4, "threads for builds"),
        fences=(20, "at once, of a minute each"),
    ).parse_args(argv)
    quiet = structlog.make_filtering_bound_logger(logging.WARNING)
    structlog.configure(wrapper_class=quiet)
    counts = given.builds
    with (
        tempfile.TemporaryDirectory(prefix="fuga-bench-") as name,
        a_register() as (_, url),
        redis_server(Path(name)) as redis,
        raw_sql(url) as raw,
    ):
        settings = SharedSettings(
            state_dir=Path(name), broker_url=SecretStr(redis.url), database_url=SecretStr(url)
        )
        site = OutboxSite(Registry.connect(url), raw, settings, max(counts))
        env = {
            **inherited(),
            "FUGA_STATE_DIR": name,
            "FUGA_DATABASE_URL": url,
            "FUGA_BROKER_URL": redis.url,
            "FUGA_CONCURRENCY": str(given.concurrency),
            "FUGA_FENCE_COMMAND": '["/bin/sh", "-c", "sleep $0", "{target}"]',
        }
        command = [sys.executable, "-m", "benchmarks.outbox_worker"]
        worker = Managed(
            "worker", command, Path(name) / "worker.log", env=env, ready="worker_started"
        )
        worker.start()
        try:
            site.show(counts, given.seconds, given.fences)
        finally:
            site.close()
            worker.kill()


class OutboxSite:
    """A register, hosts, and the sweep of a control centre."""

    def __init__(
        self, registry: Registry, raw: RawSql, settings: SharedSettings, most: int
    ) -> None:
        self.registry, self.raw = registry, raw
        self._probe = CeleryQueue(settings)  # what the sweep has is the sweep's alone
        add_vm_type(registry)
        add_tenant(registry)
        self._lease = take_lease(registry, length_s=3600)
        self._hosts: list[Host] = [
            self._host(f"h{number}") for number in range(-(-most // _PER_HOST) + 20)
        ]
        self._stop = threading.Event()
        self._dispatcher = Dispatcher(
            registry,
            CeleryQueue(settings),
            interval_s=1.0,
            resend_after_s=10,
            build_timeout_s=86_400,
        )
        self._sweep = threading.Thread(target=self._dispatcher.run, args=(self._stop,), daemon=True)
        self._sweep.start()
        self._most_messages = 0

    def close(self) -> None:
        self._stop.set()
        self._dispatcher.nudge()
        self._sweep.join()
        self.registry.close()

    def show(self, counts: Sequence[int], seconds: float, fences: int) -> None:
        print(f"{'waiting':>8}{'builds/s':>10}{'ratio':>7}{'messages':>10}", flush=True)
        first = None
        for count in counts:
            self.wait_for(count)
            time.sleep(WARM_UP_S)
            rate = self.rate(seconds)
            first = first or rate
            print(f"{count:>8}{rate:>10.2f}{rate / first:>7.2f}{self._most_messages:>10}")
        print(f"with {self.waiting()} builds waiting:", flush=True)
        for what, ask in (
            ("stop", self.stop),
            ("delete", self.delete),
            ("console", self.console),
            ("fence", self.fence),
        ):
            began = time.monotonic()
            ask()
            print(f"{what:>8}{time.monotonic() - began:>8.2f} s", flush=True)
        self.fence_slowly(fences)
        print(f"and {fences} hosts being fenced:", flush=True)
        for what, ask in (("stop", self.stop), ("console", self.console)):
            began = time.monotonic()
            ask()
            print(f"{what:>8}{time.monotonic() - began:>8.2f} s", flush=True)

    def waiting(self) -> int:
        return self._count("assignments WHERE state IN ('reserved', 'creating')")

    def wait_for(self, count: int) -> None:
        """Place ``count`` VMs in one round, so that their builds wait."""
        more = count - self.waiting()
        request = add_request(self.registry, more)
        parts, versions, left = [], {}, more
        for host in reversed(self._hosts):
            if left and (placed := min(left, _PER_HOST)):
                fresh = self.registry.hosts.get(host.name)
                if self._placed(host):
                    continue
                parts.append(Placement(request_id=request.id, host_id=host.id, count=placed))
                versions[host.id] = fresh.version
                left -= placed
        committed = self.registry.rounds.commit_round(a_commit(self._lease, tuple(parts), versions))
        assert len(committed.assignment_ids) == more
        self._dispatcher.nudge()

    def rate(self, seconds: float) -> float:
        """Return the number of builds that finish per second."""
        before, began = self._running(), time.monotonic()
        self._most_messages = 0
        while (passed := time.monotonic() - began) < seconds:
            lengths = self._probe.queue_lengths() or {}
            self._most_messages = max(self._most_messages, lengths.get(WorkQueue.BUILD, 0))
            time.sleep(0.5)
        return (self._running() - before) / passed

    def stop(self) -> None:
        vm_id = self._a_running_vm()
        self.registry.vms.change_power(vm_id, VmDesiredEvent.STOP, actor=ACTOR)
        self._until(lambda: self.registry.vms.get(vm_id).observed is VmObserved.STOPPED)

    def delete(self) -> None:
        vm_id = self._a_running_vm()
        self.registry.vms.delete(vm_id, actor=ACTOR)
        self._until(lambda: self.registry.vms.get(vm_id).observed is VmObserved.ABSENT)

    def console(self) -> None:
        read_console(self.registry, self._probe, self._a_running_vm(), max_bytes=1000)

    def fence(self) -> None:
        name = self.registry.vms.get(self._a_running_vm()).host
        assert name is not None
        self._ask_for_fence(name, target="0")

        def is_fenced() -> bool:
            fence = self.registry.hosts.get(name).fence
            return fence is not None and fence.fenced_at is not None

        self._until(is_fenced)

    def fence_slowly(self, fences: int) -> None:
        """Fence hosts by commands that take a minute, and wait until the commands run."""
        for host in self._hosts[:fences]:
            self._ask_for_fence(host.name, target="60")
        self._until(lambda: self._count("host_fences WHERE state = 'running'") > 0)
        time.sleep(WARM_UP_S)

    def _ask_for_fence(self, name: str, *, target: str) -> None:
        host = self.registry.hosts.update(name, fence_target=target, actor=ACTOR)
        self.registry.hosts.record_miss(host.id, "timeout", unreachable_after=1, down_after=1)
        self.registry.fencing.request(name, actor=ACTOR)

    def _until(self, condition: Callable[[], bool]) -> None:
        eventually(condition, within_s=PATIENCE_S, every_s=0.02)

    def _host(self, name: str) -> Host:
        return add_host(
            self.registry,
            name,
            uri=_URI.format(name=name),
            domain_type="qemu",
            base_volume="base.qcow2",
        )

    def _placed(self, host: Host) -> bool:
        query = f"SELECT 1 FROM assignments WHERE host_id = '{host.id}' LIMIT 1"
        return bool(self.raw.rows(query))

    def _running(self) -> int:
        return self._count("vms WHERE observed = 'running'")

    def _count(self, of: str) -> int:
        [row] = self.raw.rows(f"SELECT count(*) AS n FROM {of}")
        return int(row["n"])

    def _a_running_vm(self) -> Any:
        query = "SELECT id FROM vms WHERE observed = 'running' AND desired = 'running' LIMIT 1"
        [row] = self.raw.rows(query)
        return row["id"]


if __name__ == "__main__":
    main()
