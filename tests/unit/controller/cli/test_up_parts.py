from __future__ import annotations

import dataclasses
import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from controller.embedded.down import remove_files, remove_site
from controller.embedded.environment import child_environ
from controller.embedded.lab_hosts import LabHosts
from controller.embedded.listen_address import choose_listen_address
from controller.embedded.setup import CAPACITIES, lab_host_bodies
from controller.embedded.site_database import AnotherDatabaseError, check_site
from controller.embedded.state import AlreadyRunningError, SetupRecord, StateDir, lock_state_dir
from controller.embedded.up import LocalSite
from controller.settings import ControllerSettings
from controller.terminal.errors import BadInputError, CliError
from lab.cluster import LabHost
from registry import Registry, upgrade
from registry.db.private_files import ForeignOwnerError
from tests.register import add_host


@pytest.fixture
def state(tmp_path: Path) -> StateDir:
    state = StateDir(tmp_path / "state")
    state.make()
    return state


@pytest.mark.parametrize("stranger", [None, "mine.txt"])
def test_a_purge_removes_all_that_is_ours_and_nothing_else(
    state: StateDir, stranger: str | None
) -> None:
    for folder in ("lab", "logs", "broker", "images"):
        (state.path / folder).mkdir(exist_ok=True)
        (state.path / folder / "file").write_text("ours")
    state.database.write_text("ours")
    if stranger is not None:
        (state.path / stranger).write_text("of somebody else")

    remove_files(state)

    left = [each.name for each in state.path.iterdir()] if state.path.exists() else None
    assert left == (None if stranger is None else [stranger])


def test_port_0_finds_a_free_one() -> None:
    listen, url = choose_listen_address("127.0.0.1:8732", 0)

    assert listen.startswith("127.0.0.1:")
    assert not listen.endswith((":0", ":8732"))
    assert url == f"http://{listen}"


def test_a_taken_port_says_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]

        with pytest.raises(BadInputError, match=rf"listens on 127.0.0.1:{port}.*--port 0"):
            choose_listen_address(f"127.0.0.1:{port}", None)


@pytest.mark.parametrize("listen", ["8732", "127.0.0.1", "127.0.0.1:http", ":8732", "h:99999"])
def test_an_address_that_is_none_is_refused(listen: str) -> None:
    with pytest.raises(BadInputError, match="FUGA_LISTEN"):
        choose_listen_address(listen, None)


def test_who_listens_everywhere_is_found_on_this_machine() -> None:
    listen, url = choose_listen_address("0.0.0.0:0", None)

    assert listen.startswith("0.0.0.0:")
    assert url.startswith("http://127.0.0.1:")


def test_only_one_up_holds_a_state_folder(state: StateDir) -> None:
    with (
        lock_state_dir(state),
        pytest.raises(AlreadyRunningError, match=r"pid \d+.*fuga down"),
        lock_state_dir(state),
    ):
        pass


def test_the_lock_is_free_again_afterwards(state: StateDir) -> None:
    with lock_state_dir(state):
        pass
    with lock_state_dir(state):
        pass


def test_memory_comes_back_as_it_was_kept(state: StateDir) -> None:
    kept = SetupRecord(hosts_from="lab", driver="qemu", lab_uris=("qemu+tcp://h/system",)).save(
        state
    )

    assert SetupRecord.load(state) == kept


def test_a_folder_of_another_make_is_named(state: StateDir) -> None:
    state.memory.write_text('{"colour": "red"}')

    with pytest.raises(CliError, match=r"embedded\.json"):
        SetupRecord.load(state)


def test_the_folder_is_for_its_owner_alone(state: StateDir) -> None:
    assert state.path.stat().st_mode & 0o777 == 0o700


def test_a_folder_that_was_there_is_tightened(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir(mode=0o755)

    StateDir(tmp_path / "state").make()

    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "state" / "logs").stat().st_mode & 0o777 == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    os.chown(tmp_path / "state", 65534, 65534)

    with pytest.raises(ForeignOwnerError, match="belongs to user 65534"):
        StateDir(tmp_path / "state").make()


def test_the_processes_get_slots_and_leases_of_5_seconds(tmp_path: Path) -> None:
    environ = child_environ({"HOME": "/root"}, tmp_path, "127.0.0.1:9", ())

    assert environ["FUGA_SLOT_LENGTH_S"] == "5"
    assert environ["FUGA_LEASE_S"] == "5"
    assert environ["FUGA_POLL_INTERVAL_S"] == "1"
    assert environ["FUGA_LISTEN"] == "127.0.0.1:9"
    assert environ["FUGA_STATE_DIR"] == str(tmp_path)
    assert environ["HOME"] == "/root"


def test_the_operators_settings_go_before_ours(tmp_path: Path) -> None:
    config = tmp_path / "fuga.toml"
    config.write_text("lease_s = 9\n")
    given = {"FUGA_SLOT_LENGTH_S": "2", "FUGA_CONFIG": str(config)}

    environ = child_environ(given, tmp_path, "127.0.0.1:9", ())

    assert environ["FUGA_SLOT_LENGTH_S"] == "2"
    assert "FUGA_LEASE_S" not in environ


def test_only_the_labs_own_uris_widen_what_the_api_lets_in(tmp_path: Path) -> None:
    uris = ("test+unix:///default?socket=/run/h1",)

    lab = child_environ({}, tmp_path, "127.0.0.1:9", uris)
    own = child_environ({}, tmp_path, "127.0.0.1:9", ())

    assert '"test+unix"' in lab["FUGA_URI_SCHEMES"]
    assert '"qemu+tls"' in lab["FUGA_URI_SCHEMES"]
    assert lab["FUGA_URI_PARAMETERS"] == '["socket"]'
    assert "FUGA_URI_SCHEMES" not in own
    assert "FUGA_URI_PARAMETERS" not in own


def a_lab_host(number: int) -> LabHost:
    return LabHost(
        name=f"labhost{number}",
        uri=f"qemu+unix:///system?socket=/run/{number}/libvirt-sock",
        domain_type="qemu",
        pool="default",
        network="default",
        base_volume="base.qcow2",
        images_dir=None,
        log_dir=Path("/nowhere"),
    )


def test_the_lab_is_the_papers_cluster() -> None:
    lab = LabHosts(driver="qemu", hosts=tuple(a_lab_host(n) for n in range(1, 9)))

    bodies = lab_host_bodies(lab)

    amounts = [tuple(body["overrides"].values()) for body in bodies]
    assert amounts == list(CAPACITIES)
    assert amounts == [(16, 32768, 300)] + [(4, 8192, 500)] * 3 + [(4, 4096, 200)] * 4
    assert [body["name"] for body in bodies] == [f"host-{n}" for n in range(1, 9)]
    assert {body["memory_backing_mib"] for body in bodies} == {128}


def a_report(kind: str, pid: int, machine: str = "") -> dict[str, str]:
    return {"kind": kind, "name": f"{machine or socket.gethostname()}:{pid}"}


class Started:
    """A site whose processes have these pids, and whose API has these reports."""

    def __init__(self, reports: Sequence[dict[str, str]]) -> None:
        self.pids = {"control": 11, "monitor": 12, "worker": 13}
        self.reports = reports

    def get(self, path: str) -> dict[str, Any]:
        assert path == "status"
        return {"processes": self.reports}

    def pid(self, name: str) -> int:
        return self.pids[name]

    def log_file(self, name: str) -> Path:
        return Path(f"logs/{name}.log")

    def check(self) -> None:
        pass

    def raise_if_failing(self) -> None:
        pass


@pytest.mark.parametrize(
    "worker",
    [
        [],
        [a_report("worker", 99)],  # of an earlier `fuga up`
        [a_report("worker", 13, machine="elsewhere")],
    ],
)
def test_a_worker_that_does_not_report_is_named_with_what_waits(
    state: StateDir,
    worker: list[dict[str, str]],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("controller.embedded.up._REPORT_S", 0.0)
    site: Any = Started([a_report("control", 11), a_report("monitor", 12), *worker])
    up = LocalSite(settings=None, state=state, own_hosts=None, driver="", port=None)  # type: ignore[arg-type]
    up.supervisor, up.api = site, site

    up._await_reports()

    said = capsys.readouterr().out
    assert "reports    control, monitor (" in said
    assert (
        "no worker reports: nothing creates VMs, so placed VMs wait. Its log: logs/worker" in said
    )


def test_where_all_report_nobody_is_named(
    state: StateDir, capsys: pytest.CaptureFixture[str]
) -> None:
    site: Any = Started([a_report("control", 11), a_report("monitor", 12), a_report("worker", 13)])
    up = LocalSite(settings=None, state=state, own_hosts=None, driver="", port=None)  # type: ignore[arg-type]
    up.supervisor, up.api = site, site

    up._await_reports()

    said = capsys.readouterr().out
    assert "reports    control, monitor, worker (" in said
    assert "no worker" not in said


@pytest.fixture
def of_this_site(register: Registry, register_url: str, state: StateDir) -> SetupRecord:
    """The record of a site whose database is the register's."""
    add_host(register, "host-1")
    record = SetupRecord(hosts_from="lab", registered=True, lab_hosts=("host-1",))
    site = check_site(record, state, register_url)
    assert site is not None
    return dataclasses.replace(record, site=site)


def test_a_state_folder_belongs_to_its_database(
    of_this_site: SetupRecord, state: StateDir, register_url: str, tmp_path: Path
) -> None:
    assert check_site(of_this_site, state, register_url) == of_this_site.site
    another = f"sqlite:///{tmp_path / 'another.db'}"
    assert check_site(of_this_site, state, another) is None, "it is not there yet"
    upgrade(another)

    for record in (of_this_site, dataclasses.replace(of_this_site, site=None)):
        with pytest.raises(
            AnotherDatabaseError, match=r"FUGA_DATABASE_URL as it was.*FUGA_STATE_DIR"
        ):
            check_site(record, state, another)
    assert check_site(SetupRecord(), state, another) not in {None, of_this_site.site}


def test_down_changes_no_database_of_another_site(
    of_this_site: SetupRecord, state: StateDir, register: Registry, register_url: str
) -> None:
    dataclasses.replace(of_this_site, site="0" * 16).save(state)
    settings = ControllerSettings(database_url=register_url, state_dir=state.path)

    with pytest.raises(AnotherDatabaseError):
        remove_site(settings, state)

    assert register.hosts.get("host-1").admin == "active"
