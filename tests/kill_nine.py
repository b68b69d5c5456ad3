"""Kill -9 every process of `fuga up` while VMs are created, start again, and look.

``python -m tests.kill_nine --seeds 20`` is the long form; the suite runs a few
seeds. The looking is done by virsh and raw SQL, never by our API.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import httpx

from lab.cluster import LabHost, start_real_hosts, stop_hosts
from tests.servers.lab_hosts import LETS_TCP_IN
from tests.servers.running import RunningFuga, eventually

POINTS = (
    "round.after_commit",
    "create.after_volume",
    "create.after_define",
    "create.before_resume",
    "create.after_activate",
    "delete.after_destroy",
    "upload.after_begin",
    "upload.piece",
    "upload.before_end",
    "random",
)
IMAGE = "lab"
SETTLE_S = 600.0
TYPES = ("tiny", "small", "medium")


@dataclass(frozen=True)
class Accepted:
    """What a tenant was told: 201 for so many VMs."""

    tenant: str
    request_id: str
    count: int


def virsh(uri: str, *words: str) -> list[str]:
    """Ask the host around all of our code."""
    done = subprocess.run(
        ["virsh", "-q", "-c", uri, *words], capture_output=True, text=True, timeout=60, check=True
    )
    return [line.strip() for line in done.stdout.splitlines() if line.strip()]


def domains(uri: str) -> dict[str, str]:
    """State of each domain, ours by UUID; one look, so that none vanishes in between."""
    lines = [line.split(maxsplit=2) for line in virsh(uri, "list", "--all")]
    return {name.removeprefix("fuga-"): state for _, name, state in lines}


def volumes(uri: str) -> set[str]:
    virsh(uri, "pool-refresh", "default")
    names = {line.split()[0] for line in virsh(uri, "vol-list", "default")}
    return {name for name in names if name.startswith("fuga-")}


def processes_of(state_dir: Path) -> list[int]:
    """Every process that carries this state folder in its environment."""
    mark = f"FUGA_STATE_DIR={state_dir}".encode()
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            with contextlib.suppress(OSError):
                if mark in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
    return found


def kill_everything(state_dir: Path) -> int:
    """SIGKILL all of them, the supervisor first, until none is left."""
    killed = 0
    while pids := processes_of(state_dir):
        for pid in sorted(pids):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                killed += 1
        time.sleep(0.05)
    return killed


def ask(fuga: RunningFuga, tenant: str, body: dict, key: str) -> Accepted | None:
    """Ask as a tenant does, with a key; None when nobody answered."""
    try:
        with fuga.client(tenant) as client:
            answer = client.post("/v1/requests", json=body, headers={"Idempotency-Key": key})
    except (httpx.HTTPError, OSError):
        return None
    if answer.status_code != 201:
        return None
    return Accepted(tenant, answer.json()["id"], body["count"])


class Scenario:
    """One seed: ask, kill, start again, settle, look, delete, look."""

    def __init__(self, seed: int, point: str, fuga: RunningFuga, hosts: list[LabHost]) -> None:
        self.rng = random.Random(seed)
        self.point = point
        self.fuga = fuga
        self.hosts = hosts
        assert hosts[0].images_dir is not None
        self.base = hosts[0].images_dir / "base.qcow2"
        self.mark = fuga.state_dir / f"killed-{seed}"
        self.accepted: list[Accepted] = []
        self.retries: list[tuple[str, dict, str]] = []

    def run(self) -> str:
        self.fuga.start(FUGA_KILL_AT=self.point, FUGA_KILL_MARK=str(self.mark))
        self.fuga.wait_until_served()
        self.fuga.cli("image", "add", IMAGE, str(self.base), "--seed", "nocloud")
        self.ask_for_vms(self.rng.randint(2, 4))
        if self.point.startswith("delete"):
            self.settle()
            self.delete_all()
        if self.point == "random":
            time.sleep(self.rng.uniform(0.0, 7.0))
        else:
            eventually(self.mark.exists, within_s=SETTLE_S)
        killed = kill_everything(self.fuga.state_dir)
        self.expire_uploads()

        self.fuga.start()
        self.fuga.wait_until_served()
        self.retry_unanswered()
        self.settle()
        self.check()
        running = len(self.running())
        self.delete_all()
        eventually(self.is_free, within_s=SETTLE_S)
        self.fuga.cli("image", "remove", IMAGE)
        eventually(self.is_empty, within_s=SETTLE_S)
        assert self.fuga.interrupt() == 0
        return f"{killed} processes killed, {running} guests ran afterwards, none left"

    def ask_for_vms(self, requests: int) -> None:
        for _ in range(requests):
            tenant, vm_type = self.rng.choice("ab"), self.rng.choice(TYPES)
            body = {"vm_type": vm_type, "count": self.rng.randint(1, 3)}
            key = str(uuid.UUID(int=self.rng.getrandbits(128)))
            if self.rng.random() < 0.5 or self.point.startswith("upload"):
                body["image"] = IMAGE
            answer = ask(self.fuga, tenant, body, key)
            if answer is None:
                self.retries.append((tenant, body, key))
            else:
                self.accepted.append(answer)

    def retry_unanswered(self) -> None:
        for unanswered in self.retries:
            self.accepted.append(eventually(lambda each=unanswered: ask(self.fuga, *each)))

    def expire_uploads(self) -> None:
        """Who uploaded is dead, so nobody need wait until its claim is over."""
        with closing(sqlite3.connect(self.fuga.database)) as database, database:
            database.execute("update image_copies set lease_until = created_at")

    def settle(self) -> None:
        """Until every VM that has a place runs, and whatever has none says why."""
        eventually(self.settled, within_s=SETTLE_S, every_s=0.5)

    def settled(self) -> bool:
        busy = self.fuga.sql(
            "select count(*) from assignments a join vms v on v.id = a.vm_id where "
            "a.state not in ('active', 'released') or (a.state = 'active' and "
            "(v.observed != 'running' or v.desired = 'deleted'))"
        )
        undecided = self.fuga.sql(
            "select count(*) from requests where state in ('pending', 'partly_placed') "
            "and waiting is null"
        )
        on_its_way = self.fuga.sql("select count(*) from image_copies where state != 'present'")
        return busy == undecided == on_its_way == [(0,)]

    def running(self) -> dict[str, str]:
        """Host name of each running domain; fails if one UUID is on two hosts."""
        seen: dict[str, str] = {}
        for host in self.hosts:
            for domain, state in domains(host.uri).items():
                assert state == "running", f"{domain} is {state} on {host.name}"
                assert domain not in seen, f"{domain} is on {seen[domain]} and {host.name}"
                seen[domain] = host.name
        return seen

    def check(self) -> None:
        """What runs is what the ledger says, and nobody's request is lost."""
        ledger = {
            str(uuid.UUID(vm)): host
            for vm, host in self.fuga.sql(
                "select a.vm_id, h.name from assignments a join hosts h on h.id = a.host_id "
                "where a.state = 'active'"
            )
        }
        names = self.names()
        assert {vm: names[host] for vm, host in self.running().items()} == ledger
        kept = {
            f"fuga-{uuid.UUID(each)}{end}"
            for (each,) in self.fuga.sql("select id from assignments where state = 'active'")
            for end in (".qcow2", "-seed.img")
        }
        copies = self.fuga.sql("select volume, attempts from image_copies")
        kept |= {volume for volume, _ in copies}
        if self.point.startswith("upload"):
            assert any(attempts > 1 for _, attempts in copies), copies
        found = Counter(name for host in self.hosts for name in volumes(host.uri))
        assert found == Counter(kept), f"volumes: {found} instead of {kept}"
        self.check_sums()
        for shown in self.accepted:
            (state, count, waiting) = self.fuga.sql(
                "select state, count, waiting from requests where id = ?",
                uuid.UUID(shown.request_id).hex,
            )[0]
            if self.point.startswith("delete"):
                assert state in ("released", "cancelled")
            else:
                assert count == shown.count
                assert state == "placed" or waiting is not None, (state, waiting)

    def check_sums(self) -> None:
        wrong = self.fuga.sql(
            "select i.host_id, i.resource, i.committed, i.capacity, coalesce(sum(r.amount), 0) s "
            "from inventories i left join (assignment_resources r join assignments a on "
            "a.id = r.assignment_id and a.state != 'released') on r.host_id = i.host_id and "
            "r.resource = i.resource group by 1, 2, 3, 4 having i.committed != s "
            "or i.committed > i.capacity"
        )
        assert wrong == []

    def names(self) -> dict[str, str]:
        """Name in the register of each lab host."""
        by_uri = dict(self.fuga.sql("select uri, name from hosts where admin != 'retired'"))
        return {host.name: by_uri[host.uri] for host in self.hosts}

    def delete_all(self) -> None:
        for shown in self.accepted:
            with self.fuga.client(shown.tenant) as client:
                answer = client.delete(f"/v1/requests/{shown.request_id}")
                assert answer.status_code in (202, 404, 409), answer.text

    def is_free(self) -> bool:
        return self.fuga.sql("select coalesce(sum(committed), 0) from inventories") == [(0,)]

    def is_empty(self) -> bool:
        return self.is_free() and all(
            not domains(host.uri) and not volumes(host.uri) for host in self.hosts
        )


def hosts_file(path: Path, hosts: list[LabHost]) -> Path:
    """An operator's own hosts: the lab's, with capacities of the paper's smaller ones."""
    path.write_text(
        "\n".join(
            f'[[host]]\nname = "kvm-{number}"\nuri = "{host.uri}"\ndomain_type = "qemu"\n'
            'base_volume = "base.qcow2"\nmemory_backing_mib = 96\n'
            "overrides = { vcpus = 4, memory_mib = 8192, disk_gib = 200 }\n"
            for number, host in enumerate(hosts, start=1)
        )
    )
    return path


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--hosts", type=int, default=3)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="fuga-kill-") as folder:
        lab = Path(folder) / "lab"
        try:
            hosts = start_real_hosts(options.hosts, lab, transport="tcp")
            for seed in range(options.first, options.first + options.seeds):
                point = POINTS[(seed - 1) % len(POINTS)]
                started = time.monotonic()
                shown = run_seed(seed, point, Path(folder) / f"state-{seed}", hosts)
                print(
                    f"seed {seed:3} {point:22} {shown} ({time.monotonic() - started:.0f} s)",
                    flush=True,
                )
        finally:
            stop_hosts(lab, purge=True)
    print(f"{options.seeds} passed, 0 failed")
    return 0


def run_seed(seed: int, point: str, state_dir: Path, hosts: list[LabHost]) -> str:
    """One scenario in a state folder of its own; nothing is left running."""
    state_dir.mkdir(parents=True)
    file = hosts_file(state_dir / "hosts.toml", hosts)
    fuga = RunningFuga(state_dir, arguments=("--hosts", str(file)), env=LETS_TCP_IN)
    try:
        return Scenario(seed, point, fuga, hosts).run()
    except BaseException:
        sys.stderr.write(f"--- seed {seed} at {point} ---\n{fuga.output()[-4000:]}\n")
        raise
    finally:
        kill_everything(state_dir)


if __name__ == "__main__":
    sys.exit(main())
