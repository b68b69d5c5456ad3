"""VMs are built over TLS and over SSH, and nothing tells what opens their hosts."""

from __future__ import annotations

import json
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from registry.hosts import HostCredentials, NewHost
from tests.integration.workers.site import ServiceProcess, Site, open_site
from tests.servers.lab_opened import OpenedLab, opened_lab, other_authority
from tests.servers.running import FUGA, eventually

pytestmark = [pytest.mark.sqlite, pytest.mark.qemu, pytest.mark.slow]

PATIENCE_S = 240.0
SETTINGS = {"FUGA_POLL_INTERVAL_S": "2", "FUGA_POLL_DEADLINE_S": "60"}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenedLab]:
    with opened_lab(tmp_path_factory.mktemp("opened"), 2) as lab:
        lab.ssh(2, "start")
        yield lab


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with open_site(tmp_path / "site") as site:
        yield site


def add_host(site: Site, lab: OpenedLab, number: int, uri: str, credential: str) -> str:
    host = lab.lab.hosts[number - 1]
    new = NewHost(
        name=host.name,
        uri=uri,
        credential=credential,
        domain_type=host.domain_type,
        pool=host.pool,
        network=host.network,
        base_volume=host.base_volume,
        memory_backing_mib=128,
        overrides={"vcpus": 16, "memory_mib": 32768, "disk_gib": 300},
    )
    site.registry.hosts.add(new, actor="cli")
    return host.name


def trouble(site: Site, name: str) -> str:
    return site.registry.hosts.get(name).last_error or ""


@pytest.mark.long
def test_vms_are_built_over_tls_and_ssh_and_no_secret_is_told(
    site: Site, lab: OpenedLab, tmp_path: Path
) -> None:
    store = HostCredentials(tmp_path / "what-opens-hosts")
    lab.write_tls(store, "site", other_authority(tmp_path / "pki"))
    lab.write_ssh(store, "ssh", 2)
    by_tls = add_host(site, lab, 1, lab.tls_uri(1), "site")
    by_ssh = add_host(site, lab, 2, lab.ssh_uri(2), "ssh")
    settings = {**SETTINGS, "FUGA_HOST_CREDENTIALS": str(store.folder)}
    monitor = site.start("monitor", **settings)
    worker = site.start("workers", **settings)

    # Enrolment says what is wrong, and goes on as soon as it is mended.
    eventually(lambda: "its certificate is refused" in trouble(site, by_tls), within_s=PATIENCE_S)
    eventually(lambda: "none is registered" in trouble(site, by_ssh), within_s=PATIENCE_S)
    lab.write_tls(store, "site")  # the files of the credential are exchanged
    site.registry.hosts.update(by_ssh, ssh_host_keys=[lab.host_key(2)], actor="cli")
    for name in (by_tls, by_ssh):
        eventually(
            lambda name=name: site.registry.hosts.get(name).health == "up", within_s=PATIENCE_S
        )

    for host in lab.lab.hosts:
        site.request(host)
    eventually(site.all_run, within_s=PATIENCE_S)

    # Another credential by name.
    lab.write_tls(store, "site-2")
    site.registry.hosts.update(by_tls, credential="site-2", actor="cli")
    eventually(lambda: len(monitor.logged("watch_started", host=by_tls)) >= 3, within_s=PATIENCE_S)
    seen = site.registry.hosts.get(by_tls).last_polled_at
    eventually(lambda: site.registry.hosts.get(by_tls).last_polled_at != seen, within_s=PATIENCE_S)
    assert site.registry.hosts.get(by_tls).health == "up"

    doctor = subprocess.run(
        [FUGA, "doctor", "-o", "json"],
        env={"PATH": "/usr/bin:/bin", "FUGA_STATE_DIR": str(site.folder),
             "FUGA_HOST_CREDENTIALS": str(store.folder)},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    findings = {
        each["about"]: each["well"]
        for each in json.loads(doctor.stdout)["findings"]
        if each["about"].startswith("credential ")
    }
    assert findings == {"credential site": True, "credential site-2": True, "credential ssh": True}

    shown = "\n".join(
        [
            doctor.stdout + doctor.stderr,
            *(service.log.read_text(errors="replace") for service in (monitor, worker)),
            dump(site.folder / "fuga.db"),
            *commands_of(monitor),
            *commands_of(worker),
        ]
    )
    assert by_tls in shown
    for secret in secrets(store):
        assert secret not in shown


def dump(database: Path) -> str:
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        return "\n".join(connection.iterdump())


def commands_of(service: ServiceProcess) -> list[str]:
    """What every user of the machine sees of a process and its children."""
    children = Path(f"/proc/{service.pid}/task").glob("*/children")
    pids = [str(service.pid), *" ".join(each.read_text() for each in children).split()]
    found = []
    for pid in pids:
        try:
            found.append(Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " "))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def secrets(store: HostCredentials) -> list[str]:
    """Lines of keys and certificates, and where they lie."""
    found = [str(store.folder / name) for name in store.names()]
    for path in store.folder.glob("*/*"):
        lines = path.read_text().splitlines()
        found += [line for line in lines if len(line) > 20 and not line.startswith("-----")]
    assert len(found) > 10
    return found
