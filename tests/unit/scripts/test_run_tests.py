"""`make test`: a test that a fault of libvirt's failed runs once more, alone, and no other."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest

from scripts.run_tests import NO_TESTS, WITH_HOSTS, Account, PytestGroup
from tests import libvirt_faults

ROOT = Path(__file__).resolve().parents[3]
#: Pytest without the plugins of other suites, which take seconds to load.
PLAIN_PYTEST = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "xdist.plugin"}
CONFTEST = """
from tests.account import Account
from tests.libvirt_faults import LibvirtFaults

def pytest_configure(config):
    config.pluginmanager.register(Account(), "account")
    config.pluginmanager.register(LibvirtFaults(), "libvirt_faults")
"""
MOODY = """
from pathlib import Path

def test_it():
    mark = Path("seen")
    seen = mark.exists()
    mark.touch()
    assert seen, {why!r}
"""
BY_LIBVIRT = "qemu+ssh://h/system does not answer: report: its process ended (-11): "
IN_TURN = """
import time
from pathlib import Path

import pytest

def note(name):
    with Path("order").open("a") as order:
        order.write(name + " ")

@pytest.mark.alone
@pytest.mark.qemu
def test_alone():
    time.sleep(3)  # beside the others it would be the last
    note("alone")

def test_without_hosts():
    time.sleep(3)
    note("without")

@pytest.mark.qemu
def test_with_hosts():
    note("with")
"""


def run_tests(folder: Path, text: str, **env: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_it.py").write_text(text)
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "pytest.ini").write_text(
        "[pytest]\nmarkers =\n    qemu\n    test_driver\n    alone\n"
    )
    return subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "run_tests.py"), "-n", "0"],
        cwd=folder,
        env={**os.environ, **PLAIN_PYTEST, "PYTHONPATH": str(ROOT), "CI": "", **env},
        capture_output=True,
        text=True,
        check=False,
    )


def test_what_tests_start_finds_its_modules_compiled(tmp_path: Path) -> None:
    text = "import sys\n\ndef test_it():\n    assert not sys.dont_write_bytecode\n"

    ran = run_tests(tmp_path, text, PYTHONDONTWRITEBYTECODE="1")

    assert ran.returncode == 0, ran.stdout


def test_a_pytest_that_a_signal_ends_has_failed(tmp_path: Path) -> None:
    ran = run_tests(tmp_path, "import os\n\ndef test_it():\n    os.kill(os.getpid(), 9)\n")

    assert ran.returncode == 9, ran.stdout


@pytest.mark.parametrize(("text", "status"), [("def test_it():\n    pass\n", 0), ("", NO_TESTS)])
def test_one_group_may_have_no_tests_but_not_all(tmp_path: Path, text: str, status: int) -> None:
    ran = run_tests(tmp_path, text)

    assert ran.returncode == status, ran.stdout


def test_what_takes_the_whole_machine_runs_first_and_tests_with_hosts_last(tmp_path: Path) -> None:
    ran = run_tests(tmp_path, IN_TURN)

    assert ran.returncode == 0, ran.stdout
    assert (tmp_path / "order").read_text().split() == ["alone", "without", "with"]


@pytest.mark.parametrize(
    ("text", "status"),
    [
        (MOODY.format(why=BY_LIBVIRT), 0),
        (f"def test_it():\n    raise AssertionError({BY_LIBVIRT!r})\n", 1),
        (MOODY.format(why="too late, on a busy machine"), 1),
    ],
)
def test_what_libvirt_failed_and_passes_alone_is_named(
    tmp_path: Path, text: str, status: int
) -> None:
    ran = run_tests(tmp_path, text)

    assert ran.returncode == status, ran.stdout
    line = "LIBVIRT: test_it.py::test_it failed (its client over SSH died of SIGSEGV)"
    assert (line in ran.stdout) == (status == 0)
    assert "0 passed, 1 failed, 0 skipped" in ran.stdout


@pytest.mark.parametrize(
    ("failed", "libvirt", "again"),
    [
        ([], {}, False),
        (["tests/e2e/test_it.py::test_a"], {}, False),
        (["tests/e2e/test_it.py::test_a"], {"tests/e2e/test_it.py::test_a": "it died"}, True),
        (
            ["tests/e2e/test_it.py::test_a", "tests/e2e/test_it.py::test_b"],
            {"tests/e2e/test_it.py::test_a": "it died"},
            False,
        ),
    ],
)
def test_tests_run_again_only_if_libvirt_failed_each(
    failed: list[str], libvirt: dict[str, str], again: bool
) -> None:
    assert Account(failed=failed, libvirt=libvirt).failed_by_libvirt is again


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (BY_LIBVIRT, True),
        ("qemu+tls://h/system does not answer: report: its process ended (-11): ", False),
        ("qemu+ssh://h/system does not answer: report: its process ended (-6): ", False),
        ("qemu+ssh://h/system does not answer: report: no answer within 5.0 s", False),
    ],
)
def test_a_client_is_known_by_its_way_and_its_signal(text: str, found: bool) -> None:
    assert bool(list(libvirt_faults.of_client(text))) is found


def test_daemons_that_crashed_since_are_found_and_ended_ones_are_not(tmp_path: Path) -> None:
    log = tmp_path / "lab" / "hosts" / "1" / "log" / "daemons.log"
    log.parent.mkdir(parents=True)
    log.write_text(
        "2026-11-27 09:59:59 libvirtd ended (SIGSEGV); it starts again in 1 s\n"
        "2026-11-27 10:00:00 libvirtd ended (SIGABRT); it starts again in 2 s\n"
        "2026-11-27 10:00:01 libvirtd ended (SIGKILL); it starts again in 4 s\n"
        "2026-11-27 10:00:02 virtlogd ended (SIGSEGV); it starts again in 1 s\n"
    )
    children = {
        number: subprocess.Popen([sys.executable, "-c", f"import os; os.kill(os.getpid(), {by})"])
        for number, by in ((1, signal.SIGSEGV), (2, signal.SIGKILL))
    }
    for number, child in children.items():
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        pid_file = tmp_path / "driver-hosts" / "test-hosts" / str(number) / "daemon.pid"
        pid_file.parent.mkdir(parents=True)
        pid_file.write_text(f"{child.pid} 1\n")

    found = list(libvirt_faults.of_daemons(tmp_path, datetime(2026, 11, 27, 10)))  # noqa: DTZ001

    assert found == ["libvirtd of 1 died of SIGABRT", "libvirtd of test host 1 died of SIGSEGV"]
    for child in children.values():
        child.wait()


def test_paths_that_somebody_asks_for_stand_in_place_of_the_groups(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(ROOT)
    group = PytestGroup("with hosts", ("-n", "3"), WITH_HOSTS)

    assert group.arguments(["-k", "ledger"]) == ["-n", "3", "-k", "ledger", *WITH_HOSTS]
    for requested in ("tests/contract", "tests/contract/test_limits.py::test_it"):
        assert group.arguments([requested]) == ["-n", "3", requested]
