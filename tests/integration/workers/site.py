"""A register center on SQLite, lab hosts, and real worker and monitor processes beside them."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from celery import Celery

from hypervisor import HostConnection
from lab.cluster import LabHost
from monitor.translate import to_report
from registry import HostAdminEvent, Registry, upgrade
from registry.admin.backup import restore
from registry.db import uuid7
from registry.hosts import NewHost, UriPolicy
from registry.images import ImageStore, NewImage
from registry.requests import Vm
from service.settings import SharedSettings, celery_config
from tests.kill_nine import virsh
from tests.raw_sql import raw_sql
from tests.register import add_request, add_tenant, add_vm_type, place
from tests.servers.running import eventually

LEASE_S = 2.0
_POLICY = UriPolicy(
    schemes=frozenset({"qemu+tcp", "test+tcp", "test+unix"}), parameters=frozenset({"socket"})
)


@dataclass
class ServiceProcess:
    """`python -m workers` or `python -m monitor`, and what it logged."""

    process: subprocess.Popen[bytes]
    log: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    def lines(self) -> list[dict[str, Any]]:
        found = []
        for line in self.log.read_text(errors="replace").splitlines():
            try:
                found.append(json.loads(line))
            except ValueError:
                found.append({"event": line})
        return found

    def logged(self, event: str, **fields: Any) -> list[dict[str, Any]]:
        wanted = {"event": event, **fields}
        return [line for line in self.lines() if wanted.items() <= line.items()]

    def is_stopped(self) -> bool:
        """Tell whether SIGSTOP holds it."""
        return Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T"

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


class Site:
    """One installation without API and control centre: the test decides and sweeps."""

    def __init__(self, folder: Path, *, backup: Path | None = None) -> None:
        self.folder = folder
        self.settings = SharedSettings(state_dir=folder, lease_s=LEASE_S)
        self.url = self.settings.resolved_database_url()
        if backup is not None:
            restore(self.url, backup)
        upgrade(self.url)
        self.registry = Registry.connect(self.url)
        if backup is None:
            add_vm_type(self.registry, "tiny", memory_mib=1024, disk_gib=5)
            add_tenant(self.registry)
        self._app = Celery("sender", set_as_current=False)
        self._app.conf.update(celery_config(self.settings))
        self._services: list[ServiceProcess] = []

    def add_host(self, host: LabHost, *, reported: bool = True) -> None:
        self.registry.hosts.add(
            NewHost(
                name=host.name,
                uri=host.uri,
                domain_type=host.domain_type,
                pool=host.pool,
                network=host.network,
                base_volume=host.base_volume,
                memory_backing_mib=128,
                max_builds=4,
                overrides={"vcpus": 16, "memory_mib": 32768, "disk_gib": 300},
            ),
            actor="cli",
            uri_policy=_POLICY,
        )
        if reported:
            self.report(host)

    def add_unanswering_host(self, name: str, uri: str) -> None:
        self.registry.hosts.add(NewHost(name=name, uri=uri), actor="cli", uri_policy=_POLICY)

    def retire(self, name: str) -> None:
        self.registry.hosts.change_admin(name, HostAdminEvent.RETIRE, actor="cli")

    def report(self, host: LabHost) -> None:
        """Look at a host once, as the monitor does."""
        started_at = self.registry.now()
        with HostConnection(host.uri) as connection:
            seen = connection.report(host.pool)
        report = to_report(seen, started_at=started_at, polled_at=self.registry.now(), took_ms=1)
        self.registry.hosts.record_report(self.registry.hosts.get(host.name).id, report)

    def add_image(self, name: str, file: Path) -> None:
        """Put an image into the store, as the API does."""
        content, key = file.read_bytes(), uuid7()
        store = ImageStore(self.folder / "images", max_bytes=1 << 30)
        with store.receive(key, "qcow2") as incoming:
            incoming.write(content)
            stored = incoming.store(hashlib.sha256(content).hexdigest())
        self.registry.images.add(
            NewImage(name=name, format="qcow2"),
            id=key,
            sha256=stored.sha256,
            size_bytes=stored.size_bytes,
            virtual_size_bytes=stored.virtual_size_bytes,
            source=name,
            actor="cli",
        )

    def request(self, host: LabHost, count: int = 1, **fields: Any) -> list[UUID]:
        """Ask for tiny VMs, place them on a host, return their assignments."""
        request = add_request(self.registry, count, vm_type="tiny", **fields)
        found = self.registry.hosts.get(host.name)
        assignment_ids = place(self.registry, request, found, count).assignment_ids
        assert len(assignment_ids) == count
        return list(assignment_ids)

    def place_again(self, request_id: UUID, host: LabHost) -> None:
        """Place a VM of a request that lost its place."""
        request = self.registry.requests.get(request_id)
        place(self.registry, request, self.registry.hosts.get(host.name))

    def sweep(self) -> None:
        """Send what is due, as the control centre does."""
        for due in self.registry.assignments.send_due_tasks(resend_after_s=1):
            self._app.send_task(due.task, args=[str(due.id)])

    def let_builds_last(self, seconds: int) -> None:
        """Let every build have begun so long ago."""
        with raw_sql(self.url) as raw:
            began_at = raw.before("now", f"{seconds} seconds")
            raw.run(f"UPDATE assignments SET build_began_at = {began_at}")

    def committed(self, host: LabHost) -> int:
        """Return how many vCPUs a host's assignments hold."""
        [vcpus] = [
            each.committed
            for each in self.registry.hosts.get(host.name).inventories
            if each.resource == "vcpus"
        ]
        return vcpus

    def vms(self) -> list[Vm]:
        return list(self.registry.vms.list(limit=500).items)

    def delete_all(self) -> None:
        for vm in self.vms():
            self.registry.vms.delete(vm.id, actor="cli")

    def all_run(self) -> bool:
        """Sweep once; tell whether every VM runs."""
        self.sweep()
        return all(vm.observed == "running" for vm in self.vms())

    def all_gone(self) -> bool:
        self.sweep()
        return self.vms() == []

    def delete_all_and_wait(self) -> None:
        self.delete_all()
        eventually(self.all_gone)

    def start(self, module: str, **env: str) -> ServiceProcess:
        """Start `python -m MODULE` on this site."""
        log = self.folder / f"{module}-{len(self._services)}.log"
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("FUGA_")}
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", module],
                env=inherited
                | {"FUGA_STATE_DIR": str(self.folder), "FUGA_LEASE_S": str(LEASE_S)}
                | env,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        service = ServiceProcess(process, log)
        self._services.append(service)
        return service

    def close(self) -> None:
        for service in self._services:
            service.end()
        self.registry.close()

    def logs(self) -> str:
        return "\n".join(
            f"--- {service.log.name}\n{service.log.read_text(errors='replace')[-4000:]}"
            for service in self._services
        )


@contextmanager
def open_site(folder: Path, *, backup: Path | None = None) -> Iterator[Site]:
    """Open a new site, or one with what a backup has."""
    site = Site(folder, backup=backup)
    try:
        yield site
    except BaseException:
        print(site.logs())
        raise
    finally:
        site.close()


def domain_states(uri: str) -> Mapping[str, str]:
    """State of each domain by UUID; one that goes while we look is not there."""
    states = {each: _state(uri, each) for each in virsh(uri, "list", "--all", "--uuid")}
    return {each: state for each, state in states.items() if state is not None}


def _state(uri: str, domain: str) -> str | None:
    try:
        return virsh(uri, "domstate", domain)[0]
    except subprocess.CalledProcessError as error:
        if "failed to get domain" in error.stderr:
            return None
        print(f"virsh: {error.stderr}")  # for who reads of a failure
        raise
