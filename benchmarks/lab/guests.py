"""Print how long real guests take until they run, through fuga and by a bare script.

    python -m benchmarks.lab.guests [--guests 15,30,45] [--repeats 2]

Three lab hosts (libvirtd and QEMU, emulated), and a small site: PostgreSQL with fsync on,
Redis, one `fuga control`, one `fuga monitor` and two `fuga worker` with their defaults. The
VMs of one request, as many on each host, are timed from the first round's commit, and from
the request, until the ledger says that all of them run. ``bare`` is two processes of
`benchmarks.lab.bare_guests`, which build the same guests on the same hosts by plain libvirt
calls, one after the other, over connections that are open already. Both go first in turn;
a few guests before them are not counted. ``ratio`` is fuga from the commit to bare, of the
medians. ``ms/guest`` is processor time for a guest: of fuga's processes, of its database and
broker, of the bare script's, and of the hosts (libvirtd, QEMU and what boots in it) under
each. The guests boot while others are built, on the same processors.
"""

from __future__ import annotations

import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psycopg

from benchmarks.kit import parser, unless
from benchmarks.lab.bare_guests import DISK_GIB, MEMORY_MIB
from benchmarks.processor import descendants_cpu_s, family_cpu_s
from lab import cluster
from lab.cluster import LabHost
from registry import Registry, upgrade
from tests.chaos.processes import WAIT_S, Managed, fuga_command, inherited
from tests.chaos.servers import Redis
from tests.kill_nine import kill_everything
from tests.register import ACTOR, add_host, add_request, add_tenant, add_vm_type
from tests.servers.lab_hosts import guest_dir
from tests.servers.postgres import DURABLE, postgres_server, why_not
from tests.servers.running import eventually

HOSTS: Final = 3
WORKERS: Final = 2
#: What a run through fuga should take at most, of a bare one.
TARGET: Final = 1.15
#: The longest that a request waits for its round.
SLOT_S: Final = 5
WARM_UP: Final = 6
LOOK_S: Final = 0.02
_RUNNING: Final = """
    SELECT count(*), extract(epoch from min(r.created_at))
    FROM assignments a JOIN vms v ON v.id = a.vm_id JOIN rounds r ON r.number = a.round
    WHERE v.request_id = %s AND a.state = 'active' AND v.observed = 'running'"""
_HELD: Final = "SELECT count(*) FROM assignments WHERE state <> 'released'"


@dataclass(frozen=True)
class GuestFigures:
    """The figures of one series of guests."""

    since_request_s: float
    since_commit_s: float
    cpu_s: Mapping[str, float]  #: by what used it


@dataclass
class LabSite:
    """The hosts of a lab, and the processor time of their processes."""

    folder: Path
    hosts: Sequence[LabHost]

    def cpu_s(self) -> float:
        pids = [
            int((self.folder / "hosts" / str(number) / "pid").read_text().split()[0])
            for number in range(1, len(self.hosts) + 1)
        ]
        return sum(map(descendants_cpu_s, pids))


class GuestSite:
    """The processes of fuga, and the register center that they share."""

    def __init__(self, lab: LabSite, registry: Registry, url: str) -> None:
        self._lab = lab
        self.registry = registry
        self._looking = psycopg.connect(url.replace("+psycopg", ""), autocommit=True)
        self.processes: dict[str, list[int]] = {"fuga": [], "servers": []}

    def close(self) -> None:
        self._looking.close()

    def ask(self, query: str, *parameters: object) -> list[Any]:
        """Return the only column of an SQL query, read directly from the database."""
        return [row[0] for row in self._looking.execute(query, parameters).fetchall()]

    def build(self, count: int) -> GuestFigures:
        """Request VMs and wait until they run; then remove them."""
        for host in self._lab.hosts:
            overrides = {"vcpus": count // HOSTS}  # so that they are spread evenly
            self.registry.hosts.update(host.name, overrides=overrides, actor=ACTOR)
        before, started = self.cpu_s(), time.time()
        request = add_request(self.registry, count, vm_type="tiny").id

        def all_run() -> tuple[Any, ...] | None:
            seen = self._looking.execute(_RUNNING, (request,)).fetchone()
            return seen if seen is not None and seen[0] == count else None

        seen = eventually(all_run, within_s=WAIT_S, every_s=LOOK_S)
        ended = time.time()
        assert seen is not None
        after = self.cpu_s()
        self.registry.requests.delete(request, actor=ACTOR)
        eventually(lambda: self.ask(_HELD) == [0], within_s=WAIT_S)
        cpu_s = {name: after[name] - before[name] for name in before}
        return GuestFigures(ended - started, ended - float(seen[1]), cpu_s)

    def cpu_s(self) -> dict[str, float]:
        """Return the processor time of the site by process."""
        used = {name: sum(map(family_cpu_s, pids)) for name, pids in self.processes.items()}
        return used | {"hosts": self._lab.cpu_s()}


class Scripts:
    """Processes of a bare script, which read commands from lines."""

    def __init__(self, module: str, lab: LabSite) -> None:
        command = [sys.executable, "-m", module, *(host.uri for host in lab.hosts)]
        self._processes = [
            subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
            for _ in range(WORKERS)
        ]

    @classmethod
    @contextmanager
    def running(cls, module: str, lab: LabSite) -> Iterator[Scripts]:
        """Start the processes, and end them after the block."""
        scripts = cls(module, lab)
        try:
            scripts._answers("ready")
            yield scripts
        finally:
            for process in scripts._processes:
                process.kill()
                process.wait()

    def tell(self, lines: Sequence[str]) -> list[list[str]]:
        """Send each process a line; return the answers once all have finished."""
        for process, line in zip(self._processes, lines, strict=True):
            assert process.stdin is not None
            process.stdin.write(f"{line}\n")
            process.stdin.flush()
        return self._answers("done")

    def cpu_s(self) -> float:
        """Return the processor time of the processes."""
        return sum(family_cpu_s(process.pid) for process in self._processes)

    def _answers(self, word: str) -> list[list[str]]:
        answers = []
        for process in self._processes:
            assert process.stdout is not None
            said, *answer = process.stdout.readline().split() or [""]
            assert said == word, f"a bare script said {said!r}"
            answers.append(answer)
        return answers


class ScriptGuests:
    """Guests built by two processes of the bare script."""

    def __init__(self, lab: LabSite, scripts: Scripts) -> None:
        self._lab, self._scripts = lab, scripts

    def build(self, count: int) -> GuestFigures:
        """Build guests on the hosts in turn; then remove them."""
        before, hosts_before = self._scripts.cpu_s(), self._lab.cpu_s()
        started = time.time()
        self._scripts.tell([f"build {first} {count} {WORKERS}" for first in range(WORKERS)])
        took = time.time() - started
        cpu_s = {"bare": self._scripts.cpu_s() - before, "hosts": self._lab.cpu_s() - hosts_before}
        self._scripts.tell(["remove"] * WORKERS)
        return GuestFigures(took, took, cpu_s)


def no_broker() -> str | None:
    """Return the reason why no broker is available, or None."""
    return None if shutil.which("redis-server") else "redis-server is not installed"


@unless(cluster.real_hosts_obstacle, why_not, no_broker)
def main(argv: Sequence[str] | None = None) -> None:
    arguments = parser(
        __doc__,
        guests=([15, 30, 45], f"how many, multiples of {HOSTS}, commas between"),
        repeats=(2, "series of each, on each side"),
    )
    given = arguments.parse_args(argv)
    counts = given.guests
    if any(count < HOSTS or count % HOSTS for count in counts):
        arguments.error(f"--guests {given.guests}: multiples of {HOSTS}, one for each host")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # and everything ends with us
    print(f"{HOSTS} hosts, {WORKERS} workers; at most {TARGET:g} of bare is the aim")
    print(
        f"{'guests':>6}{'fuga s: request':>17}{'commit':>8}{'bare s':>8}{'ratio':>7}"
        f"{'ms/guest: fuga':>16}{'servers':>9}{'hosts':>7}{'bare':>7}{'hosts':>7}"
    )
    with (
        running_lab() as lab,
        running_site(lab) as site,
        Scripts.running("benchmarks.lab.bare_guests", lab) as scripts,
    ):
        bare = ScriptGuests(lab, scripts)
        site.build(WARM_UP)
        bare.build(WARM_UP)
        for count in counts:
            sides: dict[str, list[GuestFigures]] = {"fuga": [], "bare": []}
            for repeat in range(given.repeats):
                order = ("fuga", "bare") if repeat % 2 == 0 else ("bare", "fuga")
                for side in order:
                    sides[side].append((site if side == "fuga" else bare).build(count))
            show(count, sides["fuga"], sides["bare"])


def show(count: int, fuga: Sequence[GuestFigures], bare: Sequence[GuestFigures]) -> None:
    since_commit = statistics.median(each.since_commit_s for each in fuga)
    bare_s = statistics.median(each.since_commit_s for each in bare)

    def ms(series: Sequence[GuestFigures], what: str) -> float:
        return 1000 * statistics.median(each.cpu_s[what] for each in series) / count

    print(
        f"{count:>6}{statistics.median(each.since_request_s for each in fuga):>17.1f}"
        f"{since_commit:>8.1f}{bare_s:>8.1f}{since_commit / bare_s:>7.2f}"
        f"{ms(fuga, 'fuga'):>16.0f}{ms(fuga, 'servers'):>9.0f}{ms(fuga, 'hosts'):>7.0f}"
        f"{ms(bare, 'bare'):>7.0f}{ms(bare, 'hosts'):>7.0f}",
        flush=True,
    )


@contextmanager
def running_lab() -> Iterator[LabSite]:
    """Start the hosts of a lab, and end them after the block."""
    with tempfile.TemporaryDirectory(prefix="fuga-bench-lab-") as name:
        folder = Path(name)
        guest_dir().mkdir(parents=True, exist_ok=True)
        try:
            yield LabSite(
                folder, cluster.start_real_hosts(HOSTS, folder, guest_dir(), transport="tcp")
            )
        finally:
            cluster.stop_hosts(folder, purge=True)


@contextmanager
def running_site(lab: LabSite) -> Iterator[GuestSite]:
    """Start a small site on the hosts of a lab, and end it after the block."""
    with ExitStack() as undo:
        folder = Path(undo.enter_context(tempfile.TemporaryDirectory(prefix="fuga-bench-")))
        server = undo.enter_context(postgres_server(DURABLE, on_disk=True))
        url = undo.enter_context(server.database())
        upgrade(url)
        broker = Redis(folder / "redis.log")
        undo.callback(broker.close)
        broker.start()
        registry = Registry.connect(url)
        undo.callback(registry.close)
        site = GuestSite(lab, registry, url)
        undo.callback(site.close)
        postmaster = server.pid
        site.processes["servers"] = [postmaster, broker.process.pid]
        _fill_register(registry, lab)
        undo.callback(kill_everything, folder)  # children that had not noticed
        for process in _processes(folder, url, broker.url):
            undo.callback(process.close)
            process.start()
            site.processes["fuga"].append(process.pid)
            process.wait_until_ready()
        eventually(
            lambda: all(registry.hosts.get(host.name).health == "up" for host in lab.hosts),
            within_s=WAIT_S,
        )
        yield site


def _fill_register(registry: Registry, lab: LabSite) -> None:
    add_tenant(registry)
    add_vm_type(registry, "tiny", memory_mib=MEMORY_MIB, disk_gib=DISK_GIB)
    for host in lab.hosts:
        add_host(
            registry,
            host.name,
            uri=host.uri,
            domain_type=host.domain_type,
            pool=host.pool,
            network=host.network,
            base_volume=host.base_volume,
            overrides={"vcpus": 1, "memory_mib": 65_536, "disk_gib": 1024},
            up=False,
        )


def _processes(folder: Path, url: str, broker_url: str) -> list[Managed]:
    env = {
        **inherited(),
        "FUGA_STATE_DIR": str(folder),
        "FUGA_DATABASE_URL": url,
        "FUGA_BROKER_URL": broker_url,
        "FUGA_SLOT_LENGTH_S": str(SLOT_S),
    }
    ready = {
        "control": "control_centre_started",
        "monitor": "monitor_started",
        **{f"worker-{number}": "worker_started" for number in range(1, WORKERS + 1)},
    }
    return [
        Managed(
            name, fuga_command(name.partition("-")[0]), folder / f"{name}.log", env=env, ready=word
        )
        for name, word in ready.items()
    ]


if __name__ == "__main__":
    main()
