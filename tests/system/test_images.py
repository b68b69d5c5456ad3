"""An image from a file on an operator's desk to guests that boot from it, and off the hosts."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from lab.cluster import BASE_VOLUME
from tests.servers.lab_hosts import LETS_TCP_IN, LabCluster, guest_dir
from tests.servers.running import RunningFuga, eventually, running_fuga

pytestmark = [pytest.mark.qemu, pytest.mark.sqlite, pytest.mark.slow]

HOSTS = """
[[host]]
name = "kvm-1"
uri = "{uri}"
domain_type = "qemu"
memory_backing_mib = 96
overrides = {{ vcpus = 8, memory_mib = 16384, disk_gib = 100 }}
"""


@pytest.fixture(scope="module")
def lab(lab_cluster) -> LabCluster:
    return lab_cluster(1)


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    """A web server of this machine that has the guest's image."""
    folder = guest_dir()

    class Handler(SimpleHTTPRequestHandler):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments, directory=str(folder))

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def fuga(lab, site, tmp_path_factory):
    """`fuga up` with one host that names no base volume: a guest boots from an image or not."""
    state_dir = tmp_path_factory.mktemp("images") / "state"
    state_dir.mkdir()
    file = state_dir / "hosts.toml"
    file.write_text(HOSTS.format(uri=lab.uris[0]))
    allowed = json.dumps([f"{site}/"])
    with running_fuga(
        state_dir, "--hosts", str(file), FUGA_IMAGE_URLS=allowed, **LETS_TCP_IN
    ) as fuga:
        yield fuga


@pytest.mark.long
def test_guests_boot_from_an_image_that_was_added_and_it_goes_when_they_are_gone(
    lab: LabCluster, fuga: RunningFuga
) -> None:
    before = lab.images(1)
    added = fuga.cli("image", "add", "tiny-linux", str(guest_dir() / BASE_VOLUME))
    assert "image tiny-linux:1 is ready" in added.stdout

    requested = ("request", "tiny", "-n", "2", "--tenant", "a", "--name", "web", "--wait")
    fuga.cli(*requested, "--image", "tiny-linux")

    vms = json.loads(fuga.cli("vms", "-o", "json").stdout)
    assert len(vms) == 2
    for vm in vms:
        log = lab.serial_log(1, f"fuga-{vm['id']}")
        eventually(lambda log=log, vm=vm: f"LAB-GUEST-READY uuid={vm['id']}" in read(log))
    [copy] = json.loads(fuga.cli("image", "show", "tiny-linux", "-o", "json").stdout)["copies"]
    assert (copy["host"], copy["state"], copy["attempts"]) == ("kvm-1", "present", 1)
    assert copy["uploaded_bytes"] == (guest_dir() / BASE_VOLUME).stat().st_size
    [brought] = {name for name in lab.images(1) - before if name.startswith("fuga-image-")}
    host = json.loads(fuga.cli("host", "show", "kvm-1", "-o", "json").stdout)
    [disk] = [each for each in host["inventories"] if each["resource"] == "disk_gib"]
    assert (disk["foreign"], disk["committed"]) == (1, 10)

    refused = fuga.cli("image", "remove", "tiny-linux", check=False)
    assert refused.returncode == 2
    assert "rest on it: 2, unfinished requests for it: 1" in refused.stderr
    fuga.cli("rm", "web", "--wait")
    fuga.cli("image", "remove", "tiny-linux")

    eventually(lambda: brought not in lab.images(1))
    eventually(lambda: lab.images(1) == before)
    assert list((fuga.state_dir / "images").iterdir()) == []


@pytest.mark.long
def test_an_image_whose_file_is_lost_holds_nobody_up_and_says_why(
    lab: LabCluster, fuga: RunningFuga
) -> None:
    fuga.cli("image", "add", "poison", str(guest_dir() / BASE_VOLUME))
    fuga.cli("image", "add", "good", str(guest_dir() / BASE_VOLUME), "--min-memory", "64")
    poison = json.loads(fuga.cli("image", "show", "poison", "-o", "json").stdout)
    (fuga.state_dir / "images" / f"{poison['id']}.qcow2").write_bytes(b"no image")

    fuga.cli("request", "tiny", "-n", "3", "--tenant", "a", "--name", "bad", "--image", "poison")
    eventually(lambda: "poison:1 could not be brought" in fuga.cli("vms").stdout)
    fuga.cli("request", "tiny", "--tenant", "b", "--name", "ok", "--image", "good", "--wait")

    [host] = json.loads(fuga.cli("host", "list", "-o", "json").stdout)
    assert host["backoff_until"] is None
    fuga.cli("rm", "bad", "ok", "--wait")
    for name in ("poison", "good"):
        fuga.cli("image", "remove", name)


@pytest.mark.long
def test_an_image_is_fetched_by_a_worker_and_from_nowhere_else(
    site: str, fuga: RunningFuga
) -> None:
    content = (guest_dir() / BASE_VOLUME).read_bytes()
    sha256 = hashlib.sha256(content).hexdigest()

    added = fuga.cli(
        "image", "add", "fetched", "--from", f"{site}/{BASE_VOLUME}", "--sha256", sha256
    )
    elsewhere = f"http://localhost:{site.rpartition(':')[2]}/{BASE_VOLUME}"
    refused = fuga.cli(
        "image", "add", "other", "--from", elsewhere, "--sha256", sha256, check=False
    )

    assert "image fetched:1 is ready" in added.stdout
    [file] = (fuga.state_dir / "images").iterdir()
    assert file.read_bytes() == content
    assert refused.returncode == 2
    assert "FUGA_IMAGE_URLS" in refused.stderr
    fuga.cli("image", "remove", "fetched")


def read(log: Path) -> str:
    return log.read_text(errors="replace") if log.exists() else ""
