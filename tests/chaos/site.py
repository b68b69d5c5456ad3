"""A whole production site on this machine: servers, fuga's processes and lab hosts."""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import httpx
import psycopg
from celery import Celery

from lab import SCRIPTS, cluster
from lab.cluster import LabHost
from lab.errors import LabError
from registry import Registry, upgrade
from registry.hosts import HostCredentials
from registry.rounds import PrivateKey, write_private_key
from registry.tasks.queues import QUEUE_OF
from tests.chaos.processes import WAIT_S, Managed, fuga_command, inherited
from tests.chaos.servers import Postgres, Redis
from tests.kill_nine import kill_everything
from tests.servers.lab_hosts import guest_dir
from tests.servers.lab_opened import write_credential
from tests.servers.ports import a_quiet_port
from tests.servers.running import eventually
from tests.servers.small_disks import memory_disk

T = TypeVar("T")
LEASE_S = 8
TENANTS = ("ada", "ben", "cyd")
TYPES = {"tiny": 1, "pair": 2}
VCPUS_PER_HOST = 3
POOL_MIB = 112
STATE_MIB = 256  #: for logs and what processes keep of themselves
IMAGE = "lab"
MAX_AT_ONCE = 8  #: faults
REPLACED_HOSTS = 2  #: the last ones: fenced when they fail, and their VMs placed elsewhere
_CREDENTIAL = "lab"
_SETTINGS = {
    "FUGA_LEASE_S": str(LEASE_S),
    "FUGA_SLOT_LENGTH_S": "2",
    "FUGA_RESEND_AFTER_S": "3",
    "FUGA_POLL_INTERVAL_S": "3",
    "FUGA_POLL_DEADLINE_S": "6",
    "FUGA_UNREACHABLE_AFTER": "2",
    "FUGA_DOWN_AFTER": "4",
    "FUGA_CALL_DEADLINE_S": "20",
    "FUGA_LOOKUP_DEADLINE_S": "8",
    "FUGA_SILENT_HOST_PAUSE_S": "3",
    "FUGA_METRICS_INTERVAL_S": "0.2",
    "FUGA_POLICY": "best_fit_drfh",
    "FUGA_SPOT_GRACE_S": "5",
    "FUGA_FAIRNESS_MEMORY_S": "60",
    "FUGA_PURGE_INTERVAL_S": "20",  # closed months are signed with each purge
    "FUGA_POLICY_DEADLINE_S": "20",
    # A guest is on its way for some seconds.
    "FUGA_MOVE_BANDWIDTH_MIB_S": "12",
    "FUGA_MOVE_DEADLINE_S": "40",
    "FUGA_PLAN_REST_S": "5",
    # Its disks are small.
    "FUGA_IMAGE_MARGIN_GIB": "0",
}
# Exit status 0: the host is off, and the run's record says so. Nobody switches it on meanwhile.
_FENCE = """#!/bin/bash
set -euo pipefail
. {scripts}/lib.sh
exec 9>>{lab}/.lock
flock 9
if alive {lab}/hosts/$1/pid; then {scripts}/host-fault {lab} "$1" power-off; fi
echo "{{\\"what\\": \\"switched off\\", \\"at\\": $(date +%s.%N), \\"host\\": \\"$2\\"}}" >>{record}
"""


class RunEndedError(AssertionError):
    """The run is over, or was ended, before what was waited for came."""


@dataclass(frozen=True)
class SiteHost:
    """A lab host and what the register calls it."""

    name: str
    number: int
    lab: LabHost
    uri: str  #: as it is registered
    eyes: str  #: its local socket, which is there whatever becomes of its network
    pid_file: Path
    consoles: Path  #: where it writes what its guests say
    is_replaced: bool  #: its VMs are placed elsewhere when it fails

    @property
    def pool_dir(self) -> Path:
        """Where its disks are, as this machine sees it."""
        assert self.lab.images_dir is not None
        return self.lab.images_dir


class Site:
    """Everything that runs; faults reach into it."""

    def __init__(self, folder: Path, postgres: Postgres, broker: Redis, hosts: int) -> None:
        self.folder = folder
        self.state = folder / "state"  #: a disk of its own
        self.lab_dir = folder / "lab"
        self.record_file = folder / "record.jsonl"
        self.postgres = postgres
        self.broker = broker
        self.processes: dict[str, Managed] = {}
        self.sockets: dict[str, Path] = {}  #: where each process tells its metrics
        self.api_urls: list[str] = []
        self.hosts: list[SiteHost] = []
        self.tokens: dict[str, str] = {}
        self.public_key = ""  #: by which it signs rounds and closed months
        self.ending = threading.Event()
        #: Threads that outlive the processes which they start, as these end with them.
        self.strikers = ThreadPoolExecutor(MAX_AT_ONCE, thread_name_prefix="strike")
        self._struck: dict[str, object] = {}  #: hosts, and what strikes them
        self._lock = threading.Lock()
        self._host_count = hosts
        self._celery = Celery("chaos", broker=broker.url, set_as_current=False)

    # ---- what faults and waits look at ------------------------------------------

    def sql(self, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Read the database; one that is away is waited for."""

        def read() -> tuple[list[tuple[Any, ...]]] | None:
            try:
                return (self._read(query, *parameters),)
            except psycopg.OperationalError:
                return None

        return self.eventually(read)[0]

    def eventually(
        self, look: Callable[[], T], *, within_s: float = WAIT_S, every_s: float = 0.2
    ) -> T:
        """Wait for something as long as the run is not ended."""

        def look_or_end() -> T:
            if self.ending.is_set():
                raise RunEndedError
            return look()

        return eventually(look_or_end, within_s=within_s, every_s=every_s)

    def tried_sql(self, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """The same; nothing while the database is away."""
        try:
            return self._read(query, *parameters)
        except psycopg.OperationalError:
            return []

    def _read(self, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
        with self.postgres.connect() as connection:
            return connection.execute(query.encode(), parameters or None).fetchall()

    def client(self, who: str, api: int, timeout_s: float = 20) -> httpx.Client:
        return httpx.Client(
            base_url=self.api_urls[api],
            headers={"Authorization": f"Bearer {self.tokens[who]}"},
            timeout=timeout_s,
            verify=False,  # plain HTTP: no certificates need be read each time
        )

    def of_role(self, role: str) -> list[str]:
        return [name for name in self.processes if name.startswith(f"{role}-")]

    def leader(self) -> str | None:
        """The control centre that holds the lease now; None: nobody."""
        rows = self.tried_sql(
            "SELECT holder FROM leases WHERE name = 'control' AND expires_at > clock_timestamp()"
        )
        pids = {str(self.processes[name].pid): name for name in self.of_role("control")}
        return pids.get(rows[0][0].split(":")[1]) if rows else None

    def epoch(self) -> int:
        return int(self.sql("SELECT epoch FROM leases WHERE name = 'control'")[0][0])

    def take(self, name: str, fault: object) -> SiteHost | None:
        """Reserve a host for what is to strike it; None: something else does already."""
        with self._lock:
            if self._struck.setdefault(name, fault) is not fault:
                return None
        return next(each for each in self.hosts if each.name == name)

    def leave(self, fault: object) -> None:
        """Let other things strike what this one struck."""
        with self._lock:
            self._struck = {name: each for name, each in self._struck.items() if each is not fault}

    def fault(self, host: SiteHost, *action: str) -> None:
        cluster.inject_fault(self.lab_dir, host.number, *action)

    def mend(self, host: SiteHost, *action: str) -> None:
        """End a fault of a host, which may have been switched off for it meanwhile."""
        try:
            self.fault(host, *action)
        except LabError:
            self.start_hosts()

    def keep_off(self, host: SiteHost) -> None:
        """Switch a host off where it runs; it may be ending, or starting, at this moment."""
        statuses = cluster.host_statuses(self.lab_dir)
        if statuses[host.number - 1].running:
            with contextlib.suppress(LabError):
                self.fault(host, "power-off")

    def start_hosts(self) -> list[LabHost]:
        """Start the hosts that do not run; again where fuga fences one while it starts.

        Others may be struck and not answer until they are fenced, which waits for this. A host that
        is kept off by what strikes it ends each start until that is over.
        """
        deadline = time.monotonic() + WAIT_S
        while True:
            try:
                return cluster.start_real_hosts(
                    self._host_count,
                    self.lab_dir,
                    guest_dir(),
                    timeout_s=WAIT_S,
                    transport="tls",
                    await_all=False,
                )
            except LabError:
                if self.ending.is_set() or time.monotonic() > deadline:
                    raise

    def switch_on_what_is_off(self) -> None:
        """Do what operators do: a host that was fenced is switched on again by hand."""
        if not all(host.running for host in cluster.host_statuses(self.lab_dir)):
            self.start_hosts()

    def is_fenced(self, host: SiteHost) -> bool:
        return self.tried_sql(
            "SELECT f.state FROM host_fences f JOIN hosts h ON h.id = f.host_id WHERE h.name = %s",
            host.name,
        ) == [("fenced",)]

    def is_fenced_or_empty(self, host: SiteHost) -> bool:
        """Tell whether a failed host was fenced, or is no VM's place, for which it would be.

        What arrives there or leaves it runs elsewhere: its hold waits until the host answers.
        """
        held = self.tried_sql(
            "SELECT count(*) FROM assignments a JOIN hosts h ON h.id = a.host_id WHERE h.name = %s"
            " AND a.state NOT IN ('released', 'reserved', 'arriving', 'leaving')",
            host.name,
        )
        return held == [(0,)] or self.is_fenced(host)

    def why_not_fenced(self, host: SiteHost) -> str:
        """Say what the register center has of the host, its fencing, and what stands there."""
        return str(
            self.tried_sql(
                "SELECT h.name, h.admin, h.health, h.returning_since, to_json(f.*)::text,"
                " (SELECT string_agg(a.state, ' ') FROM assignments a"
                " WHERE a.host_id = h.id AND a.state <> 'released')"
                " FROM hosts h LEFT JOIN host_fences f ON f.host_id = h.id"
                " ORDER BY h.name = %s DESC",
                host.name,
            )
        )

    def add_twin(self, host: SiteHost, name: str) -> httpx.Response:
        """Register the machine of a host once more, by another spelling of its address."""
        own = httpx.URL(host.uri)
        twin = {**_host_body(host), "name": name, "uri": str(own.copy_with(port=16514))}
        assert twin["uri"] != host.uri
        return self._answered("POST", "/v1/hosts", twin)

    def retire(self, name: str) -> bool:
        """Take a host that holds nothing out of service; True once it is, or never was there."""
        answer = self._answered("DELETE", f"/v1/hosts/{name}")
        return answer.status_code in (200, 202, 204, 404)

    def _answered(self, method: str, path: str, body: object = None) -> httpx.Response:
        """Return an API's answer; wait while none has one."""

        def answer() -> httpx.Response | None:
            with contextlib.suppress(httpx.HTTPError), self.client("operator", 0) as client:
                found = client.request(method, path, json=body)
                if found.status_code < 500:
                    return found
            return None

        found = self.eventually(answer)
        assert found is not None
        return found

    def send(self, task: str, key: str) -> None:
        queue = QUEUE_OF[task].broker_name
        self._celery.send_task(task, args=[key], ignore_result=True, queue=queue)

    # ---- start and end ------------------------------------------------------------

    def start(self) -> None:
        self.postgres.start()
        self.postgres.create_database()
        upgrade(self.postgres.url)
        self.postgres.let_clock_be_set()
        self.broker.start()
        self._make_processes()
        for process in self.processes.values():
            process.start()
        registry = Registry.connect(self.postgres.url)
        try:
            # The first token cannot come over REST, which wants one.
            _, self.tokens["operator"] = registry.tokens.create(
                "operator", None, "chaos", actor="chaos"
            )
            private = PrivateKey.generate()
            write_private_key(self.state / "site-key.pem", private)
            self.public_key = private.public_key
            registry.site_keys.add(self.public_key, instead_of=None, actor="chaos")
        finally:
            registry.close()
        lab_hosts = self.start_hosts()
        client = self.lab_dir / "pki" / "client"
        write_credential(
            HostCredentials(self.state / "host-credentials"),
            _CREDENTIAL,
            {each.name: each.read_bytes() for each in client.iterdir()},
        )
        for process in self.processes.values():
            process.wait_until_ready()
        self._fill_register(lab_hosts)
        eventually(self.all_up, within_s=WAIT_S)

    def all_up(self) -> bool:
        return self.tried_sql("SELECT count(*) FROM hosts WHERE health = 'up'") == [
            (len(self.hosts),)
        ]

    def _make_processes(self) -> None:
        fence = self.folder / "fence"
        fence.write_text(_FENCE.format(scripts=SCRIPTS, lab=self.lab_dir, record=self.record_file))
        fence.chmod(0o755)
        env = {
            **inherited(),
            **_SETTINGS,
            "FUGA_STATE_DIR": str(self.state),
            "FUGA_DATABASE_URL": self.postgres.url,
            "FUGA_BROKER_URL": self.broker.url,
            "FUGA_FENCE_COMMAND": json.dumps([str(fence), "{target}", "{host}"]),
        }
        ready = {
            "control": "control_centre_started",
            "worker": "worker_started",
            "monitor": "monitor_started",
            "api": "api_started",
        }
        for role, count in (("control", 2), ("api", 2), ("worker", 3), ("monitor", 2)):
            for number in range(1, count + 1):
                own = dict(env)
                if role == "api":
                    own["FUGA_LISTEN"] = f"127.0.0.1:{a_quiet_port()}"
                    self.api_urls.append(f"http://{own['FUGA_LISTEN']}")
                name = f"{role}-{number}"
                self.sockets[name] = self.folder / f"{name}.sock"
                own["FUGA_METRICS_LISTEN"] = f"unix:{self.sockets[name]}"
                self.processes[name] = Managed(
                    name, fuga_command(role), self.state / f"{name}.log", env=own, ready=ready[role]
                )

    def _fill_register(self, lab_hosts: list[LabHost]) -> None:
        with self.client("operator", 0, timeout_s=WAIT_S) as client:
            for name, vcpus in TYPES.items():
                amounts = {"vcpus": vcpus, "memory_mib": 512 * vcpus, "disk_gib": 1}
                _post(client, "/v1/vm-types", {"name": name, "resources": amounts})
            self._upload_image(client)
            client.put("/v1/prices/currency", json={"name": "EUR"}).raise_for_status()
            _post(client, "/v1/prices", {"resource": "vcpus", "price": "0.02"})
            for tenant in TENANTS:
                _post(client, "/v1/tenants", {"name": tenant, "weight": 1.0})
                token = {"role": "tenant", "tenant": tenant, "name": f"chaos-{tenant}"}
                self.tokens[tenant] = _post(client, "/v1/tokens", token)["secret"]
            for number, lab in enumerate(lab_hosts, start=1):
                self.hosts.append(self._host(number, lab))
                _post(client, "/v1/hosts", _host_body(self.hosts[-1]))

    def _upload_image(self, client: httpx.Client) -> None:
        """Give tenants an image: copies of it are brought to hosts, and disks lie on them."""
        query = {"name": IMAGE, "format": "qcow2", "seed_kind": "nocloud"}
        answer = client.post(
            "/v1/images/upload",
            params=query,
            content=(guest_dir() / "base.qcow2").read_bytes(),
            headers={"Content-Type": "application/octet-stream"},
        )
        assert answer.status_code == 201, answer.text

    def _host(self, number: int, lab: LabHost) -> SiteHost:
        own = self.lab_dir / "hosts" / str(number)
        return SiteHost(
            name=f"kvm-{number}",
            number=number,
            lab=lab,
            uri=lab.uri.partition("?")[0],
            eyes=f"qemu+unix:///system?socket={own}/run/libvirt-sock",
            pid_file=own / "pid",
            consoles=own / "log" / "qemu",
            is_replaced=number > self._host_count - REPLACED_HOSTS,
        )

    def close(self) -> None:
        for process in self.processes.values():
            process.close()
        kill_everything(self.folder)  # children of theirs that had not noticed


def _host_body(host: SiteHost) -> dict[str, Any]:
    return {
        "name": host.name,
        "uri": host.uri,
        "credential": _CREDENTIAL,
        "labels": ["on_failure=rebuild"] if host.is_replaced else [],
        "fence_target": str(host.number),
        "domain_type": host.lab.domain_type,
        "pool": host.lab.pool,
        "network": host.lab.network,
        "base_volume": host.lab.base_volume,
        "memory_backing_mib": 80,
        "overrides": {"vcpus": VCPUS_PER_HOST, "memory_mib": 4096, "disk_gib": 40},
    }


def _post(client: httpx.Client, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
    answer = client.post(path, json=body)
    assert answer.status_code in (201, 202), f"{path}: {answer.status_code} {answer.text}"
    shown: dict[str, Any] = answer.json()
    return shown


@contextmanager
def _small_pools(lab_dir: Path, count: int) -> Iterator[None]:
    """Give each host's pool a disk of its own that can be filled."""
    pools = [lab_dir / "hosts" / str(number) / "images" for number in range(1, count + 1)]
    with ExitStack() as undo:
        for pool in pools:
            undo.enter_context(memory_disk(pool, mib=POOL_MIB))
        yield


@contextmanager
def running_site(
    *, hosts: int = 5, fsync: bool = False, keep: Path | None = None
) -> Iterator[Site]:
    """Start a site and hand it out; nothing of it runs afterwards, whatever happened.

    ``keep``: where logs are copied to at the end.
    """
    folder = Path(tempfile.mkdtemp(prefix="fuga-chaos-"))
    with ExitStack() as undo:
        undo.callback(shutil.rmtree, folder, ignore_errors=True)
        undo.enter_context(_small_pools(folder / "lab", hosts))
        undo.enter_context(memory_disk(folder / "state", mib=STATE_MIB))
        if keep is not None:
            undo.callback(_copy_logs, folder, keep)
        postgres = Postgres(fsync=fsync)
        undo.callback(postgres.close)
        broker = Redis(folder / "redis.log")
        undo.callback(broker.close)
        site = Site(folder, postgres, broker, hosts)
        undo.callback(cluster.stop_hosts, site.lab_dir)
        undo.callback(site.close)
        undo.callback(site.strikers.shutdown)
        undo.callback(site.ending.set)
        site.start()
        yield site


def _copy_logs(folder: Path, to: Path) -> None:
    to.mkdir(parents=True, exist_ok=True)
    for log in (*folder.glob("*.log"), *folder.glob("state/*.log"), folder / "record.jsonl"):
        with contextlib.suppress(OSError):
            shutil.copy(log, to)
