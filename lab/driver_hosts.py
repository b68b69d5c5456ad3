"""Hosts of libvirt's test driver, one unprivileged libvirtd each, on Unix sockets.

The test driver forgets its world when its last client leaves. So each daemon gets a
keeper, a client that stays connected. Both run in sessions of their own: they outlive the process
that started them, and receive no Ctrl-C.
"""

from __future__ import annotations

import contextlib
import grp
import hashlib
import os
import pwd
import select
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lab import processes
from lab.errors import LabError
from registry.db.child_environ import child_environ

_START_S: Final = 30.0
_POLL_S: Final = 0.02
#: User ids that Debian assigns to no account, and that exist inside containers as well.
_DAEMON_USERS: Final = range(65000, 65500)
_CONFIG: Final = """\
listen_tls = 0
listen_tcp = 0
auth_unix_ro = "none"
auth_unix_rw = "none"
unix_sock_dir = "{run}"
max_clients = 1000
log_outputs = "3:file:{log}"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverHost:
    """One daemon and its keeper."""

    name: str
    lab_dir: Path  #: the folder it was started in
    state_dir: Path  #: pid files; ours alone
    work_dir: Path  #: sockets, configuration and logs of the daemon; a short path

    @property
    def socket(self) -> Path:
        """The socket of the host's libvirtd, at most 107 characters."""
        return self.work_dir / "libvirt-sock"

    @property
    def uri(self) -> str:
        """The URI of the host; all connections to it see the same domains."""
        return f"test+unix:///default?socket={self.socket}"

    @property
    def daemon_pid(self) -> Path:
        """The file with the pid and start time of its libvirtd."""
        return self.state_dir / "daemon.pid"

    @property
    def keeper_pid(self) -> Path:
        """The file with the pid and start time of its keeper."""
        return self.state_dir / "keeper.pid"

    def running(self) -> bool:
        """Whether the host's libvirtd and its keeper run."""
        return all(processes.running_pid(pid) for pid in (self.daemon_pid, self.keeper_pid))


def start_hosts(count: int, directory: Path) -> list[DriverHost]:
    """Start hosts 1 to ``count`` of the test driver, except those that run; return all of them."""
    if shutil.which("libvirtd", path=_search_path()) is None:
        raise LabError("libvirtd is missing (make install installs it)")
    work_dir = _work_dir(directory)
    hosts = [_driver_host(directory, work_dir, number) for number in range(1, count + 1)]
    try:
        for host in hosts:
            _start_daemon(host)
        for host in hosts:
            _start_keeper(host)
    except BaseException:
        for host in hosts:
            _stop_host(host)
        raise
    return hosts


def restart_host(host: DriverHost) -> None:
    """Start the daemon and the keeper of one host again, if they ended."""
    try:
        _start_daemon(host)
        _start_keeper(host)
    except BaseException:
        _stop_host(host)
        raise


def stop_hosts(directory: Path) -> None:
    """Stop every test-driver host of a folder, and delete its files."""
    for host in started_hosts(directory):
        _stop_host(host)
    record = _work_dir_file(directory)
    if record.exists():
        shutil.rmtree(Path(record.read_text()), ignore_errors=True)
        shutil.rmtree(_state_dir(directory), ignore_errors=True)


def started_hosts(directory: Path) -> list[DriverHost]:
    """Return the test-driver hosts that were started in a folder."""
    record = _work_dir_file(directory)
    if not record.exists():
        return []
    work_dir = Path(record.read_text())
    numbers = sorted(int(p.name) for p in _state_dir(directory).iterdir() if p.name.isdigit())
    return [_driver_host(directory, work_dir, number) for number in numbers]


def _driver_host(directory: Path, work_dir: Path, number: int) -> DriverHost:
    """Return a test-driver host of a lab by its number."""
    return DriverHost(
        name=f"testhost{number}",
        lab_dir=directory,
        state_dir=_state_dir(directory) / str(number),
        work_dir=work_dir / str(number),
    )


def _state_dir(directory: Path) -> Path:
    """Return the folder in which a lab records its test-driver hosts."""
    return directory / "test-hosts"


def _work_dir_file(directory: Path) -> Path:
    """Return the file that names the folder for the sockets of test-driver hosts."""
    return _state_dir(directory) / "work-dir"


def _work_dir(directory: Path) -> Path:
    """Create the folder for sockets: a short path, the same each time, owned by the daemons."""
    short = f"fuga-lab-{_folder_digest(directory)[:10]}"
    user, group = _daemon_user(directory)
    runtime = os.environ.get("XDG_RUNTIME_DIR") if os.geteuid() != 0 else "/run"
    last_error: OSError | None = None
    for parent in filter(None, (runtime, "/tmp")):  # noqa: S108 - the owner is checked
        place = Path(parent) / short
        try:
            place.mkdir(mode=0o700, exist_ok=True)
            ours = {os.geteuid(), user}
            if place.is_symlink() or (parent == "/tmp" and place.stat().st_uid not in ours):  # noqa: S108
                continue  # somebody put it there for us
            os.chown(place, user, group)
            place.chmod(0o700)
        except OSError as error:
            last_error = error
            continue
        _state_dir(directory).mkdir(parents=True, exist_ok=True)
        _work_dir_file(directory).write_text(str(place))
        return place
    raise LabError(f"no folder for the hosts' sockets: {last_error}")


def _folder_digest(directory: Path) -> str:
    """Return a digest of a lab's folder, for the name of the sockets' folder."""
    return hashlib.sha256(bytes(directory.resolve())).hexdigest()


def _daemon_user(directory: Path) -> tuple[int, int]:
    """Return uid and gid of the daemons: numbers of no account if this process is root.

    A daemon of root would use the machine's own libvirt folders, and programs of others may run
    as `nobody`.
    """
    if os.geteuid() != 0:
        return os.geteuid(), os.getegid()
    taken = {each.pw_uid for each in pwd.getpwall()} | {each.gr_gid for each in grp.getgrall()}
    free = [number for number in _DAEMON_USERS if number not in taken]
    if not free:
        raise LabError(f"every user number of {_DAEMON_USERS[0]} to {_DAEMON_USERS[-1]} is taken")
    number = free[int(_folder_digest(directory), 16) % len(free)]
    return number, number


def _start_daemon(host: DriverHost) -> None:
    """Start the libvirtd of a test-driver host, unless it runs."""
    if processes.running_pid(host.daemon_pid):
        return
    processes.end_process(host.keeper_pid)  # it would hold a connection to nothing
    user, group = _daemon_user(host.lab_dir)
    host.state_dir.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(host.work_dir, ignore_errors=True)
    host.work_dir.mkdir(mode=0o700)
    config = host.work_dir / "libvirtd.conf"
    config.write_text(_CONFIG.format(run=host.work_dir, log=host.work_dir / "libvirtd.log"))
    for path in (host.work_dir, config):
        os.chown(path, user, group)
    environment = {"PATH": _search_path(), "LC_ALL": "C", "HOME": str(host.work_dir)}
    for name in ("RUNTIME_DIR", "CONFIG_HOME", "CACHE_HOME", "DATA_HOME", "STATE_HOME"):
        environment[f"XDG_{name}"] = str(host.work_dir)
    as_user = {"user": user, "group": group, "extra_groups": []} if os.geteuid() == 0 else {}
    pid_file = host.work_dir / "libvirtd.pid"
    daemon = subprocess.Popen(
        ["libvirtd", "--config", str(config), "--pid-file", str(pid_file)],
        env=environment,
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        **as_user,  # type: ignore[call-overload]
    )
    processes.record_process(daemon.pid, host.daemon_pid)
    deadline = time.monotonic() + _START_S
    while not host.socket.exists():
        if daemon.poll() is not None:
            raise LabError(f"{host.name}'s libvirtd ended ({daemon.returncode}): {_log_tail(host)}")
        if time.monotonic() > deadline:
            raise LabError(f"{host.name}'s libvirtd made no socket within {_START_S:g} s")
        time.sleep(_POLL_S)
    _silence_child_warning(daemon)


def _start_keeper(host: DriverHost) -> None:
    """Start the process that keeps a test-driver host's state, unless it runs."""
    if processes.running_pid(host.keeper_pid):
        return
    with (host.state_dir / "keeper.log").open("wb") as log:
        keeper = subprocess.Popen(
            [sys.executable, "-P", "-m", "hypervisor.child.keeper", host.uri],
            env=child_environ(prefixes=("PYTHON", "XDG_")),
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )
    processes.record_process(keeper.pid, host.keeper_pid)
    assert keeper.stdout is not None  # noqa: S101 - for the type checker
    with keeper.stdout as answers:
        ready, _, _ = select.select([answers], [], [], _START_S)
        if not ready or answers.readline() != b"ready\n":
            words = (host.state_dir / "keeper.log").read_text(errors="replace").strip()
            raise LabError(f"nobody keeps {host.name}: {words.splitlines()[-1:] or 'no answer'}")
    _silence_child_warning(keeper)


def _stop_host(host: DriverHost) -> None:
    """End both processes of a test-driver host."""
    processes.end_process(host.keeper_pid)
    processes.end_process(host.daemon_pid)


def _silence_child_warning(process: subprocess.Popen[bytes]) -> None:
    """Keep Python from warning about a child process that outlives this one."""
    process.returncode = 0


def _log_tail(host: DriverHost) -> str:
    """Return the end of the log of a test-driver host's libvirtd."""
    with contextlib.suppress(OSError):
        return (host.work_dir / "libvirtd.log").read_text(errors="replace").strip()[-500:]
    return "no log"


def _search_path() -> str:
    """Return the search path of programs, with the folders of the administrator."""
    return f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
