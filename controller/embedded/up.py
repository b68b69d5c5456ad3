"""`fuga up`: from nothing to a served controller, and back at Ctrl-C."""

from __future__ import annotations

import dataclasses
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from controller.client.connection import ApiConnection
from controller.client.errors import ApiError
from controller.client.http import Client
from controller.embedded import setup
from controller.embedded.detached import notify_ready
from controller.embedded.down import remove_site
from controller.embedded.environment import child_environ
from controller.embedded.hosts_file import read_hosts_file
from controller.embedded.lab_hosts import AUTO, QEMU, LabHosts, start_lab, start_new_lab
from controller.embedded.lab_watch import LabWatch
from controller.embedded.listen_address import choose_listen_address
from controller.embedded.processes import FUGA, ChildSupervisor, terminate_leftovers
from controller.embedded.reports import NEEDED_FOR, processes_without_report
from controller.embedded.site_database import check_site
from controller.embedded.state import SetupRecord, StateDir, lock_state_dir
from controller.embedded.status_lines import StatusLines
from controller.policies import check_policies
from controller.rest.pages.web import is_built
from controller.session.credentials import Credentials
from controller.session.host_texts import health_text
from controller.session.links import create_login_link
from controller.session.polling import progress
from controller.session.private_files import write_private
from controller.session.settings import load_settings
from controller.settings import ControllerSettings
from controller.terminal.errors import CliError
from controller.terminal.output import echo_lines
from controller.terminal.times import clock
from registry import Registry
from registry import upgrade as upgrade_database
from registry.tenancy import LINK_TTL_S

PROCESSES: Final[Mapping[str, tuple[str, ...]]] = {
    "api": (*FUGA, "api"),
    "control": (*FUGA, "control"),
    "monitor": (sys.executable, "-P", "-m", "monitor"),
    "worker": (sys.executable, "-P", "-m", "workers"),
}
#: First the API and the control centre end, then workers and monitors.
STOP_ORDER: Final = (("api", "control"), ("worker", "monitor"))
_READY_S: Final = 180.0  #: one that fails ends the wait at once
_LAB_UP_S: Final = 180.0
_OWN_UP_S: Final = 15.0  #: an operator's host may be off for good: it is tried again later
_REPORT_S: Final = 60.0
_LOOK_EVERY_S: Final = 2.0


def print_line(line: str) -> None:
    """Print a line without buffering; ignore a closed output."""
    with suppress(OSError):
        echo_lines(line)
        sys.stdout.flush()


def _print_with_time(line: str) -> None:
    print_line(f"{clock(datetime.now(UTC))} {line}")


def run_up(
    *, hosts_file: Path | None, driver: str, port: int | None, ready_fd: int | None = None
) -> int:
    """Run `fuga up` until a signal comes; return its exit status."""
    settings = load_settings()
    check_policies(settings)
    own_hosts = read_hosts_file(hosts_file) if hosts_file is not None else None
    os.umask(0o077)  # files of this process and its children are private
    state = StateDir(settings.state_dir.resolve())
    state.make()
    with lock_state_dir(state), _interrupt_on_signals():
        up = LocalSite(
            settings=settings, state=state, own_hosts=own_hosts, driver=driver, port=port
        )
        try:
            up.start()
        except KeyboardInterrupt:
            up.stop()
            print_line("interrupted; `fuga up` continues, `fuga down` stops what was started")
            return 130
        except BaseException:
            up.stop()
            raise
        try:
            if ready_fd is not None:
                notify_ready(ready_fd)
            up.watch()
        except KeyboardInterrupt:
            print_line("")
        finally:
            up.stop()
        up.print_what_stays()
    return 0


@dataclass(slots=True, kw_only=True)
class LocalSite:
    """One run of `fuga up`, step by step."""

    settings: ControllerSettings
    state: StateDir
    own_hosts: list[dict[str, Any]] | None
    driver: str
    port: int | None
    memory: SetupRecord = field(init=False)
    credentials: Credentials = field(init=False)
    supervisor: ChildSupervisor | None = None
    api: Client | None = None
    lab_watch: LabWatch | None = None

    def start(self) -> None:
        """Start all processes and hosts; keep those that exist already."""
        print_line(f"fuga up: state in {self.state.path}")
        left = terminate_leftovers(self.state.processes)
        if left:
            print_line(f"  stopped processes of an earlier `fuga up`: {', '.join(left)}")
        listen, url = choose_listen_address(self.settings.listen, self.port)
        if self.settings.tls_cert is not None:
            url = f"https{url.removeprefix('http')}"
        self.memory = SetupRecord.load(self.state)
        with self._timed_step("database") as done:
            if self.settings.database_url is None and not self.state.database.exists():
                # A database that was removed alone is a request to start over with an empty one.
                self._save_setup(registered=False, catalogue=False, site=None)
            url_of_database = self.settings.resolved_database_url()
            # Before another site's database is upgraded, and after, as an older one cannot be read.
            check_site(self.memory, self.state, url_of_database)
            revision = upgrade_database(url_of_database)
            self._save_setup(site=check_site(self.memory, self.state, url_of_database))
            done(f"at revision {revision}")
        if self.memory.ending:
            with self._timed_step("lab") as done:
                done(f"finished an earlier `fuga down`: {remove_site(self.settings, self.state)}")
            self.memory = SetupRecord.load(self.state)
        self._ensure_tokens(url)
        bodies = self._prepare_hosts()
        self._start_processes(listen, url)
        names = self._fill_register(bodies)
        self._await_hosts(names)
        self._await_reports()
        self._print_next_commands(url)

    def watch(self) -> None:
        """Restart failed processes and print changes, until interrupted."""
        assert self.supervisor is not None and self.api is not None  # noqa: S101, PT018
        looking = Client(
            self._api_connection(self.api.url), timeout_s=_LOOK_EVERY_S, retry_after_s=()
        )
        stream = StatusLines(looking, _print_with_time)
        look_at = 0.0
        while True:
            self.supervisor.check()
            if time.monotonic() >= look_at:
                stream.print_changes()
                if self.lab_watch is not None:
                    self.lab_watch.check()
                look_at = time.monotonic() + _LOOK_EVERY_S
            time.sleep(0.1)

    def stop(self) -> None:
        """Stop the processes of `fuga up`. Hosts and guests keep running."""
        if self.api is not None:
            self.api.close()
        if self.supervisor is not None:
            print_line("stopping api, control, monitor, worker")
            self.supervisor.stop(STOP_ORDER)

    def print_what_stays(self) -> None:
        """Print the hosts and guests that keep running, and commands to continue or stop them."""
        whose = (
            "hosts and guests keep running"
            if self.memory.hosts_from == "lab"
            else "your hosts keep running"
        )
        print_line(f"stopped; {whose}. `fuga up` continues, `fuga down` stops everything.")

    # --- the steps ---------------------------------------------------------------

    @contextmanager
    def _timed_step(self, name: str) -> Iterator[Callable[[str], None]]:
        """Print the name of a step, then its result and duration."""
        began = time.monotonic()
        outcome: list[str] = []
        with progress() as show:
            if sys.stderr.isatty():
                show(f"{name} …")
            yield outcome.append
        print_line(f"  {name:10} {'; '.join(outcome)} ({time.monotonic() - began:.1f} s)")

    def _api_connection(self, url: str) -> ApiConnection:
        ca = self.settings.ca
        token = self.credentials.operator
        return ApiConnection(url=url, token=token, ca=None if ca is None else str(ca))

    def _ensure_tokens(self, url: str) -> None:
        """Ensure that the operator of the state folder has a valid token."""
        registry = Registry.connect(self.settings.resolved_database_url())
        try:
            found = Credentials.load(self.state.credentials)
            self._save_credentials(setup.ensure_operator_token(registry, found, url))
        finally:
            registry.close()

    def _save_credentials(self, credentials: Credentials) -> None:
        credentials.save(self.state.credentials)
        self.credentials = credentials

    def _save_setup(self, **changes: Any) -> None:
        self.memory = dataclasses.replace(self.memory, **changes).save(self.state)

    def _prepare_hosts(self) -> list[dict[str, Any]]:
        """Return the bodies of the hosts to register; start the lab's hosts."""
        if self.own_hosts is not None:
            if self.memory.hosts_from == "lab":
                raise CliError(
                    "a lab runs here. Stop it with `fuga down`; then `fuga up --hosts FILE` "
                    "starts with your own hosts."
                )
            self._save_setup(hosts_from="file")
            print_line(f"  hosts      {len(self.own_hosts)} of your own")
            return self.own_hosts
        if self.memory.hosts_from == "file":
            print_line("  hosts      your own, as registered")
            return []
        lab = self._start_lab()
        bodies = setup.lab_host_bodies(lab)
        if self.memory.lab_uris and self.memory.lab_uris != lab.uris:
            self._update_host_addresses(lab)
        self._save_setup(lab_uris=lab.uris, lab_hosts=tuple(body["name"] for body in bodies))
        self.lab_watch = LabWatch(self.state.lab, lab, self.memory.lab_hosts, _print_with_time)
        return [] if self.memory.registered else bodies

    def _update_host_addresses(self, lab: LabHosts) -> None:
        """Register the new addresses of the lab's hosts after a restart."""
        registry = Registry.connect(self.settings.resolved_database_url())
        try:
            moved = setup.update_host_uris(registry, self.memory.lab_hosts, lab.uris)
        finally:
            registry.close()
        scheme = lab.uris[0].partition(":")[0]
        print_line(f"  hosts      {moved} have new addresses, by {scheme}")

    def _start_lab(self) -> LabHosts:
        """Start the lab's hosts, with the driver of the first start."""
        before = self.memory.driver
        with self._timed_step("hosts") as done:
            count = len(setup.CAPACITIES)
            if before is None:
                self._save_setup(hosts_from="lab")
                lab = start_new_lab(self.state.lab, self.driver, count)
                self._save_setup(driver=lab.driver)
            elif self.driver in (AUTO, before):
                lab = start_lab(self.state.lab, before, count)
            else:
                raise CliError(
                    f"the lab here has driver {before}. Stop it with `fuga down`; "
                    f"then `fuga up --driver {self.driver}` starts another."
                )
            if lab.driver == QEMU:
                done(f"{len(lab.uris)} real libvirt hosts, guests emulated by QEMU")
            else:
                reason = f" ({lab.why})" if lab.why else ""
                done(f"{len(lab.uris)} hosts of libvirt's test driver, nothing boots{reason}")
        return lab

    def _start_processes(self, listen: str, url: str) -> None:
        """Start API, control centre, monitor and worker, and wait until the API is ready."""
        uris = self.memory.lab_uris if self.memory.hosts_from == "lab" else ()
        image = self.memory.default_image
        environ = child_environ(os.environ, self.state.path, listen, uris, image=image)
        self.supervisor = ChildSupervisor(
            self.state.logs, self.state.processes, environ, print_line
        )
        self.api = Client(self._api_connection(url), timeout_s=10.0)
        with self._timed_step("processes") as done:
            for name, command in PROCESSES.items():
                self.supervisor.start(name, command)
            self._wait_until(self.api.ready, _READY_S, "the API is not ready")
            done(f"{', '.join(PROCESSES)}; logs in {_short_path(self.state.logs)}")

    def _wait_until(self, condition: Callable[[], bool], length_s: float, otherwise: str) -> None:
        """Wait for a condition while the processes run; raise `CliError` if it takes too long."""
        assert self.supervisor is not None  # noqa: S101
        deadline = time.monotonic() + length_s
        while not condition():
            self.supervisor.check()
            self.supervisor.raise_if_failing()
            if time.monotonic() > deadline:
                log = self.supervisor.log_file("api")
                raise CliError(f"{otherwise} within {length_s:g} s; its log: {log}")
            time.sleep(0.1)

    def _fill_register(self, bodies: list[dict[str, Any]]) -> list[str]:
        """Register missing types, tenants, images and hosts; return the hosts to wait for."""
        assert self.api is not None  # noqa: S101
        with self._timed_step("register") as done:
            if not self.memory.catalogue:
                setup.add_catalogue(self.api)
                self._save_setup(catalogue=True)
                done(f"VM types {', '.join(setup.VM_TYPES)}; tenants {', '.join(setup.TENANTS)}")
            credentials = setup.add_tenant_tokens(
                self.api, self.credentials, self._save_credentials
            )
            self.credentials = credentials
            if self.memory.default_image is not None:
                done(f"image {setup.add_lab_image(self.api, self.state.lab_image)}")
            added = setup.add_hosts(self.api, bodies)
            if self.memory.hosts_from == "lab":
                self._save_setup(registered=True)
            done(f"{len(added)} hosts added" if added else "unchanged")
        return [str(host["name"]) for host in self.api.items("hosts") if host["admin"] == "active"]

    def _await_hosts(self, names: list[str]) -> None:
        """Wait until the hosts are up; print those that are not in time."""
        assert self.api is not None and self.supervisor is not None  # noqa: S101, PT018
        deadline = time.monotonic() + (_LAB_UP_S if self.memory.hosts_from == "lab" else _OWN_UP_S)
        with self._timed_step("hosts up") as done:
            while True:
                well, ill = setup.split_hosts_by_health(self.api, names)
                if not ill or time.monotonic() > deadline:
                    break
                self.supervisor.check()
                self.supervisor.raise_if_failing()
                time.sleep(0.2)
            done(f"{len(well)} of {len(names)}")
        for host in ill:
            print_line(
                f"    {host['name']} is {health_text(host)}:"
                f" {host['last_error'] or 'not reached yet'}"
            )

    def _await_reports(self) -> None:
        """Wait until each process has reported; print those that have not in time."""
        assert self.api is not None and self.supervisor is not None  # noqa: S101, PT018
        deadline = time.monotonic() + _REPORT_S
        with self._timed_step("reports") as done:
            while missing := self._processes_without_report():
                if time.monotonic() > deadline:
                    break
                self.supervisor.check()
                self.supervisor.raise_if_failing()
                time.sleep(0.2)
            heard = [name for name in NEEDED_FOR if name not in missing]
            done(", ".join(heard) or "none")
        for name in missing:
            log = self.supervisor.log_file(name)
            print_line(f"    no {name} reports: {NEEDED_FOR[name]}. Its log: {log}")

    def _processes_without_report(self) -> list[str]:
        assert self.api is not None and self.supervisor is not None  # noqa: S101, PT018
        pids = {name: self.supervisor.pid(name) for name in NEEDED_FOR}
        return processes_without_report(self.api.get("status")["processes"], pids)

    def _print_next_commands(self, url: str) -> None:
        """Print where the API is, and commands to try."""
        fuga = command_name()
        elsewhere = ""
        if self.state.path != Path(".fuga").resolve():
            elsewhere = f"\n  export FUGA_STATE_DIR={self.state.path}"
        print_line(
            f"\nThe API is at {url} (its pages: {url}/docs); all tokens are in "
            f"{_short_path(self.state.credentials)}.\n"
            f"{self._browser_address(fuga)}"
            f"A slot lasts {self._slot_length_text()} s. Try in another terminal:\n{elsewhere}\n"
            f"  {fuga} request large -n 2 --tenant b --name db --wait\n"
            f"  {fuga} request small -n 4 --tenant a --name web --wait\n"
            f"  {fuga} vms\n"
            f"  {fuga} explain web-1\n"
            f"  {fuga} rounds\n"
            f"  {fuga} rm web db\n\n"
            f"Ctrl-C stops the four processes; hosts and guests keep running; "
            f"`{fuga} down` ends everything.\n"
        )

    def _browser_address(self, fuga: str) -> str:
        """Return lines with a login link to the web console; empty if it was not built.

        If the output is no terminal, others may read it: the link is then written to a file,
        and the lines name the file.
        """
        assert self.api is not None  # noqa: S101
        if not is_built():
            return ""
        try:
            link = create_login_link(self.api)
        except ApiError as error:  # as after many starts: it is a convenience
            return f"No link for a browser: {error}\n"
        whose = "this link"
        if not sys.stdout.isatty():
            try:
                write_private(self.state.login_link, link + "\n")
            except OSError as error:
                return f"No link for a browser: {self.state.login_link}: {error.strerror}\n"
            whose, link = "the link in this file", _short_path(self.state.login_link)
        return (
            f"The web console, in a browser ({whose} logs in once, within"
            f" {LINK_TTL_S // 60} minutes;\n`{fuga} login --link` prints another):\n\n"
            f"  {link}\n\n"
        )

    def _slot_length_text(self) -> str:
        assert self.supervisor is not None  # noqa: S101
        length = self.supervisor.environ.get("FUGA_SLOT_LENGTH_S")
        return length or f"{self.settings.slot_length_s:g}"


def command_name() -> str:
    """Return the command by which `fuga` is called from this folder."""
    own = Path(sys.executable).parent / "fuga"
    found = shutil.which("fuga")
    if found is not None and Path(found).absolute() == own:
        return "fuga"
    return _short_path(own) if own.exists() else "fuga"


def _short_path(path: Path) -> str:
    """Return a path relative to the current folder, if it is below it."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


@contextmanager
def _interrupt_on_signals() -> Iterator[None]:
    """Handle SIGTERM and SIGHUP like Ctrl-C during the block."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    # A shell makes its background jobs deaf to SIGINT; who sends it all the same means it.
    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup is to keep its meaning
        numbers.append(signal.SIGHUP)
    before = {each: signal.signal(each, interrupt) for each in numbers}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
