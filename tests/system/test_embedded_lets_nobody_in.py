"""A whole `fuga up` of root's, and a local user without rights who tries everything it has."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.cluster import real_hosts_obstacle
from tests.servers.running import RunningFuga, eventually, running_fuga

pytestmark = [
    pytest.mark.qemu,
    pytest.mark.slow,
    pytest.mark.skipif(real_hosts_obstacle() is not None, reason=str(real_hosts_obstacle())),
]

#: As `nobody`: what of this can be opened, connected to, or told what to do?
ATTACKS = r"""
import json, os, socket, subprocess, sys, tempfile

tries, found = json.load(sys.stdin), []
os.chdir("/")

def opens(path, flags):
    try:
        os.close(os.open(path, flags | os.O_NONBLOCK))
    except OSError:
        return False
    return True

for path in tries["folders"]:
    if os.access(path, os.R_OK) or os.access(path, os.W_OK) or os.access(path, os.X_OK):
        found.append(["folder", path])
for path in tries["files"]:
    for what, flags in (("read", os.O_RDONLY), ("written", os.O_WRONLY)):
        if opens(path, flags):
            found.append([what, path])
for path in tries["sockets"]:
    # Its path may be longer than a socket's may be: what leads there decides as well.
    with socket.socket(socket.AF_UNIX) as caller:
        try:
            caller.connect(path)
            found.append(["connected", path])
        except OSError:
            pass
for address, port in tries["ports"]:
    try:
        socket.create_connection((address, port), timeout=2).close()
        found.append(["connected", f"{address}:{port}"])
    except OSError:
        pass
os.environ["HOME"] = tempfile.mkdtemp()
for uri in tries["uris"]:
    def virsh(*words):
        try:
            words = ["virsh", "-q", "-c", uri, *words]
            done = subprocess.run(words, capture_output=True, timeout=20)
        except subprocess.TimeoutExpired:
            return False
        return done.returncode == 0
    if virsh("hostname"):
        found.append(["obeyed", uri])
        payload = os.path.join(os.environ["HOME"], "payload")
        with open(payload, "w") as file:
            file.write("owned")
        folder, name = os.path.split(tries["victim"])
        virsh("pool-create-as", "evil", "dir", "--target", folder)
        if virsh("vol-upload", name, payload, "--pool", "evil"):
            found.append(["overwrote", tries["victim"]])
json.dump(found, sys.stdout)
"""


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder whose every parent lets all users through: pytest's own do not."""
    folder = Path(tempfile.mkdtemp(prefix="fuga-nobody-", dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("driver", ["qemu", "test"])
def test_nobody_reads_writes_or_reaches_anything_of_an_embedded_cluster(
    open_folder: Path, driver: str
) -> None:
    victim = open_folder / "roots" / "secret"
    victim.parent.mkdir(mode=0o700)
    victim.write_text("root's alone")
    state_dir = open_folder / "state"
    state_dir.mkdir(mode=0o755)  # as whoever made it first left it
    with running_fuga(state_dir, "--driver", driver) as fuga:
        fuga.cli("request", "tiny", "-n", "2", "--tenant", "a", "--wait")
        tries = everything(fuga, driver) | {"victim": str(victim)}

        found = as_nobody(tries)

        with fuga.client() as client:
            api = client.base_url
            assert client.get("/v1/hosts").status_code == 200
            del client.headers["Authorization"]
            assert client.get("/v1/hosts").status_code == 401
    assert len(tries["files"]) > 20
    assert len(tries["sockets"]) >= 8
    assert found == [["connected", f"{api.host}:{api.port}"]]
    assert victim.read_text() == "root's alone"


def everything(fuga: RunningFuga, driver: str) -> dict[str, Any]:
    """All that this cluster has made: files, sockets, ports of its processes and hosts."""
    hosts = json.loads(fuga.cli("-o", "json", "host", "list").stdout)
    pids = eventually(lambda: processes_of(fuga.state_dir))
    lab = fuga.state_dir / "lab"
    short = [path for path in (lab / "sockets", lab / "test-hosts" / "work-dir") if path.exists()]
    roots = [fuga.state_dir, *(Path(path.read_text().strip()) for path in short)]
    paths = {path for root in roots for path in [root, *root.rglob("*")]} | written_by(pids)
    kinds: dict[str, list[str]] = {"folders": [], "files": [], "sockets": []}
    for path in sorted(paths):
        try:
            mode = path.stat().st_mode
        except OSError:
            continue
        if stat.S_ISDIR(mode):
            kinds["folders"].append(str(path))
        else:
            kinds["sockets" if stat.S_ISSOCK(mode) else "files"].append(str(path))
    ports = [each for pid in one_for_each_network(pids) for each in listening(pid)]
    addresses = {address for address, _ in ports} - {"127.0.0.1"}
    return kinds | {
        "ports": ports,
        "uris": [host["uri"] for host in hosts]
        + [f"{driver}+tcp://{each}/system" for each in sorted(addresses)],
    }


def processes_of(state_dir: Path) -> set[int]:
    """`fuga up` with its children, the hosts' daemons and guests."""
    body = json.loads((state_dir / "processes.json").read_text())
    pids = {each["pid"] for each in body.values()}
    pids |= {int((state_dir / "up.lock").read_text().split()[0])}
    for file in [*state_dir.rglob("pid"), *state_dir.rglob("*.pid")]:
        words = file.read_text().split()
        if len(words) == 2:  # with its start time; libvirtd's own are of its namespace
            pids.add(int(words[0]))
    parents = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(entry.name)] = int(fields[1])
    while more := {pid for pid, parent in parents.items() if parent in pids} - pids:
        pids |= more
    return pids & set(parents)


def written_by(pids: set[int]) -> set[Path]:
    """Files, outside of the system's own, that these processes hold open to write."""
    found = set()
    for pid in pids:
        for link in Path(f"/proc/{pid}/fd").glob("*"):
            try:
                target = link.readlink()
                flags = int((Path(f"/proc/{pid}/fdinfo") / link.name).read_text().split()[3], 8)
            except (OSError, IndexError):
                continue
            if flags & os.O_ACCMODE != os.O_RDONLY and target.is_file():
                found.add(target)
    return found


def one_for_each_network(pids: set[int]) -> list[int]:
    networks = {}
    for pid in sorted(pids):
        try:
            networks[Path(f"/proc/{pid}/ns/net").readlink()] = pid
        except OSError:
            continue
    return list(networks.values())


def listening(pid: int) -> list[tuple[str, int]]:
    """Where this process's network listens, at each address that it may be reached at.

    Of the machine's own network only what belongs to the cluster's processes.
    """
    own = Path(f"/proc/{pid}/ns/net").readlink() == Path("/proc/self/ns/net").readlink()
    enter = ["nsenter", "-t", str(pid), "-n"]
    reported = subprocess.run([*enter, "ss", "-Hltunp"], capture_output=True, text=True, check=True)
    shown = subprocess.run(
        [*enter, "ip", "-j", "-4", "address"], capture_output=True, text=True, check=True
    )
    here = {it["local"] for link in json.loads(shown.stdout) for it in link["addr_info"]}
    found = []
    for line in reported.stdout.splitlines():
        address, _, port = line.split()[4].rpartition(":")
        if own and not is_ours(line, pid):
            continue
        anywhere = address.split("%")[0] in {"0.0.0.0", "*", "[::]"}
        found += [(each, int(port)) for each in (here if anywhere else {address})]
    return found


def is_ours(line: str, pid: int) -> bool:
    root = Path(f"/proc/{pid}/environ")
    mine = b"FUGA_STATE_DIR=" + dict(
        each.split(b"=", 1) for each in root.read_bytes().split(b"\0") if b"=" in each
    ).get(b"FUGA_STATE_DIR", b"?")
    return any(
        mine in Path(f"/proc/{word.split(',')[0]}/environ").read_bytes()
        for word in line.split("pid=")[1:]
    )


def as_nobody(tries: dict[str, Any]) -> list[Any]:
    done = subprocess.run(
        ["setpriv", "--reuid", "nobody", "--regid", "nogroup", "--clear-groups",
         "/usr/bin/python3", "-I", "-c", ATTACKS],
        input=json.dumps(tries), capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
