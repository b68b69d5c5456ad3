"""Start, stop and list the hosts of a folder: real ones, or of libvirt's test driver.

Hosts outlive the process that started them. Everything is idempotent: what runs is kept,
what died is started again.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lab import SCRIPTS, driver_hosts, processes
from lab.errors import LabError
from registry.db.child_environ import child_environ

BASE_VOLUME: Final = "base.qcow2"

_PROGRAMS: Final = {
    "libvirtd": "libvirt-daemon",
    "virtlogd": "libvirt-daemon",
    "virsh": "libvirt-clients",
    "qemu-system-x86_64": "qemu-system-x86",
    "qemu-img": "qemu-utils",
    "ip": "iproute2",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "flock": "util-linux",
    "busybox": "busybox-static",
    "cpio": "cpio",
    "syslinux": "syslinux",
    "mformat": "mtools",
    "dpkg-deb": "dpkg",
    "apt-get": "apt",
}
#: All that host-init does which a container may forbid, in namespaces that end with it.
_PROBE: Final = """
mount -t proc proc /proc && mount -t sysfs sysfs /sys && mount --bind /tmp /tmp &&
hostname lab-probe && ip link add probe0 type bridge &&
ip link add probe1 type veth peer name probe2 && ip link set probe1 master probe0
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabHost:
    """One host of a lab, with the fields that a register center needs."""

    name: str
    uri: str
    domain_type: str  #: "qemu" or "test"
    pool: str
    network: str
    base_volume: str | None
    images_dir: Path | None  #: its pool as seen from outside; the test driver has none
    log_dir: Path  #: its libvirtd's log; of a real host also guests' consoles, in qemu/


@dataclass(frozen=True, slots=True, kw_only=True)
class HostStatus:
    """Whether a host's libvirtd runs (it may still be hung)."""

    name: str
    uri: str
    kind: str  #: "real" or "test"
    running: bool


def real_hosts_obstacle() -> str | None:
    """Return the reason why real QEMU hosts cannot run on this machine, or None."""
    if os.geteuid() != 0:
        return "only root can make network namespaces for hosts"
    missing = sorted(
        {package for program, package in _PROGRAMS.items() if not _find_program(program)}
    )
    if missing:
        return f"missing: {', '.join(missing)} (make install installs them)"
    namespaces = ("--mount", "--uts", "--ipc", "--net", "--pid", "--fork", "--kill-child")
    try:
        tried = _run_command(
            ["unshare", "--propagation", "private", *namespaces, "sh", "-ec", _PROBE]
        )
    except LabError as error:
        return str(error)
    if tried.returncode != 0:
        return f"namespaces cannot be made here: {_last_line(tried.stderr)}"
    return None


def build_guest(directory: Path) -> Path:
    """Build the guest's disk image, unless it exists; return its path."""
    _run_script("build-guest", str(directory), timeout_s=600)
    return directory / BASE_VOLUME


def start_real_hosts(
    count: int,
    directory: Path,
    guest: Path | None = None,
    *,
    timeout_s: float = 60,
    transport: str = "unix",
    await_all: bool = True,
) -> list[LabHost]:
    """Start libvirtd + QEMU hosts in namespaces; guests are emulated.

    Parameters
    ----------
    guest : Path, optional
        Folder of the guest's image (`build_guest`), by default one next to the hosts. The image is
        copied into each host's pool, unless it is there.
    transport : str, optional
        How clients reach the hosts: by Unix sockets that only root can open, by tls over networks
        of their own, or by tcp, which admits every client.
    await_all : bool, optional
        Whether to wait also for hosts that ran before. A host whose network is cut does not
        answer, and the folder is locked during that time.
    """
    image = build_guest(directory / "guest" if guest is None else guest)
    answer = _run_script(
        "start-hosts",
        str(count),
        str(directory),
        environment={
            "LAB_TIMEOUT": str(int(timeout_s)),
            "LAB_BASE": str(image),
            "LAB_TRANSPORT": transport,
            "LAB_AWAIT_STARTED": "" if await_all else "1",
        },
        timeout_s=timeout_s + 60,
    )
    return _real_hosts(directory, answer.splitlines())


def start_test_hosts(count: int, directory: Path) -> list[LabHost]:
    """Start hosts of libvirt's test driver, which answer all calls but boot nothing.

    Each is an unprivileged libvirtd whose world lives as long as a keeper is connected.
    """
    directory.mkdir(parents=True, exist_ok=True)
    return [_to_lab_host(host) for host in driver_hosts.start_hosts(count, directory)]


def stop_hosts(directory: Path, *, purge: bool = False) -> None:
    """End all hosts of a folder with their guests; with ``purge``, delete their storage too.

    Hosts of the test driver have no storage, so nothing of them is left in either case.
    """
    if not directory.is_dir():
        return
    _run_script("stop-hosts", str(directory), *(["--purge"] if purge else []), timeout_s=120)
    driver_hosts.stop_hosts(directory)


def host_statuses(directory: Path) -> list[HostStatus]:
    """Return the status of the hosts that were started in a folder and not stopped."""
    found = [
        HostStatus(
            name=host.name,
            uri=host.uri,
            kind="real",
            running=_is_real_host_running(_host_dir(directory, number)),
        )
        for number, host in enumerate(_real_hosts(directory, _recorded_uris(directory)), 1)
    ]
    found += [
        HostStatus(name=host.name, uri=host.uri, kind="test", running=host.running())
        for host in driver_hosts.started_hosts(directory)
    ]
    return found


def inject_fault(directory: Path, number: int, *action: str) -> None:
    """Make real host ``number`` (from 1) fail or recover; `scripts/host-fault` lists actions."""
    _run_script("host-fault", str(directory), str(number), *action, timeout_s=240)


def _host_dir(directory: Path, number: int) -> Path:
    """Return the folder of a real host of the lab."""
    return directory / "hosts" / str(number)


def _recorded_uris(directory: Path) -> list[str]:
    """Return the URIs of the lab's real hosts; [] if none was started."""
    try:
        return (directory / "uris").read_text().splitlines()
    except OSError:
        return []


def _real_hosts(directory: Path, uris: Sequence[str]) -> list[LabHost]:
    """Return the real hosts of a lab by their URIs."""
    return [
        LabHost(
            name=f"labhost{number}",
            uri=uri,
            domain_type="qemu",
            pool="default",
            network="default",
            base_volume=BASE_VOLUME,
            images_dir=_host_dir(directory, number) / "images",
            log_dir=_host_dir(directory, number) / "log",
        )
        for number, uri in enumerate(uris, 1)
    ]


def _to_lab_host(host: driver_hosts.DriverHost) -> LabHost:
    """Return a host of libvirt's test driver as a host of the lab."""
    return LabHost(
        name=host.name,
        uri=host.uri,
        domain_type="test",
        pool="default-pool",
        network="default",
        base_volume=None,
        images_dir=None,
        log_dir=host.work_dir,
    )


def _is_real_host_running(host: Path) -> bool:
    """Return whether the libvirtd of a real lab host runs."""
    return processes.running_pid(host / "pid") is not None and not (host / "daemon-ended").exists()


def _find_program(program: str) -> str | None:
    """Return the path of a program that lab hosts need, or None."""
    return shutil.which(program, path=_search_path())


def _search_path() -> str:
    """Return the search path of programs, with the folders of the administrator."""
    return f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"


def _run_script(
    name: str, *arguments: str, timeout_s: float, environment: dict[str, str] | None = None
) -> str:
    """Run a script of ``lab/scripts`` and return its output; raise `LabError` if it fails."""
    done = _run_command(["bash", str(SCRIPTS / name), *arguments], timeout_s, environment)
    if done.returncode != 0:
        raise LabError(_last_line(done.stderr) or f"{name} ended with {done.returncode}")
    return done.stdout


def _run_command(
    command: Sequence[str], timeout_s: float = 30, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program for the lab with few environment variables, within a time limit."""
    try:
        return subprocess.run(
            command,
            env={
                **child_environ(prefixes=("LAB_",)),
                "PATH": _search_path(),
                **(environment or {}),
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise LabError(f"{Path(command[1]).name} took more than {timeout_s:g} s") from error
    except OSError as error:
        raise LabError(f"{command[0]} cannot be run: {error}") from error


def _last_line(text: str) -> str:
    """Return the last line of a text, or ""."""
    lines = text.strip().splitlines()
    return lines[-1] if lines else ""
