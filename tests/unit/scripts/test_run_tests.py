"""`make test`: a test that failed beside others runs once more, where load may have failed it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.run_tests import WITH_HOSTS, Account, Group

ROOT = Path(__file__).resolve().parents[3]
#: Pytest without the plugins of other suites, which take seconds to load.
PLAIN_PYTEST = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "xdist.plugin"}
CONFTEST = """
from tests.account import Account

def pytest_configure(config):
    config.pluginmanager.register(Account(), "account")
"""
MOODY = """
from pathlib import Path

def test_it():
    mark = Path("seen")
    seen = mark.exists()
    mark.touch()
    assert seen
"""
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


def test_what_takes_the_whole_machine_runs_first_and_tests_with_hosts_last(tmp_path: Path) -> None:
    ran = run_tests(tmp_path, IN_TURN)

    assert ran.returncode == 0, ran.stdout
    assert (tmp_path / "order").read_text().split() == ["alone", "without", "with"]


@pytest.mark.parametrize(
    ("text", "status"), [(MOODY, 0), ("def test_it():\n    raise AssertionError\n", 1)]
)
def test_what_passes_alone_is_named_as_unsteady(tmp_path: Path, text: str, status: int) -> None:
    ran = run_tests(tmp_path, text)

    assert ran.returncode == status, ran.stdout
    assert ("UNSTEADY: test_it.py::test_it" in ran.stdout) == (status == 0)
    assert "0 passed, 1 failed, 0 skipped" in ran.stdout


@pytest.mark.parametrize(
    ("failed", "again"),
    [
        ([], False),
        (["tests/e2e/test_it.py::test_a"], True),
        ([f"tests/e2e/test_it.py::test_{each}" for each in range(8)], True),
        ([f"tests/e2e/test_it.py::test_{each}" for each in range(9)], False),
        ([f"tests/e2e/test_{each}.py::test_it" for each in range(4)], False),
        (["tests/e2e/test_it.py::test_a", "tests/golden/test_it.py::test_b"], False),
        (["tests/chaos/test_it.py::test_a"], False),
    ],
)
def test_few_failures_of_tests_on_processes_are_looked_at_again(
    failed: list[str], again: bool
) -> None:
    assert Account(failed=failed).may_be_unsteady is again


def test_paths_that_somebody_asks_for_stand_in_place_of_the_groups(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(ROOT)
    group = Group("with hosts", ("-n", "3"), WITH_HOSTS)

    assert group.arguments(["-k", "ledger"]) == ["-n", "3", "-k", "ledger", *WITH_HOSTS]
    for asked in ("tests/contract", "tests/contract/test_limits.py::test_it"):
        assert group.arguments([asked]) == ["-n", "3", asked]
