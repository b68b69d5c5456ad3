"""Without the extra `simulation` everything but simulations runs, and these say what to install."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

#: What the extra brings, itself and below it; None in `sys.modules` is what is not installed.
GONE = (
    "matplotlib",
    "pyarrow",
    "PIL",
    "contourpy",
    "kiwisolver",
    "fontTools",
    "cycler",
    "pyparsing",
)
WITHOUT = f"""
import sys
sys.modules.update(dict.fromkeys({GONE!r}))
"""
RUN = """
from controller.cli.start import main
main()
"""
#: What each process of a site imports before it is ready.
PROCESSES = (
    *(
        "controller.rest.server",
        "controller.control_center.slot_loop",
        "controller.control_center.policy_child",
    ),
    *("controller.shadow.child", "monitor.service", "workers.tasks", "simulation"),
)


def python(code: str, *words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WITHOUT + code, *words],
        env={**os.environ, "FUGA_STATE_DIR": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    "words",
    [
        ("simulate", "trace.csv", "--hosts", "1:4c:8g"),
        ("simulate", "--from-registry"),
        ("reproduce", "all"),
        ("simulation-worker", "."),
    ],
)
def test_who_simulates_is_told_in_one_line_what_to_install(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    done = python(RUN, *words, folder=tmp_path)

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"fuga: fuga {words[0]} needs matplotlib and pyarrow: pip install "
        "'fuga-controller[simulation]', or -r requirements/simulation.lock for the locked "
        "versions\n"
    )


@pytest.mark.parametrize("command", ["monitor", "worker", "up", "up --detach"])
def test_what_reaches_hosts_says_in_one_line_what_to_install(command: str, tmp_path: Path) -> None:
    done = python("sys.modules['libvirt'] = None\n" + RUN, *command.split(), folder=tmp_path)

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"fuga: fuga {command.split(maxsplit=1)[0]} needs libvirt-python: pip install"
        " 'fuga-controller[host]', or -r requirements/runtime.lock for the locked versions\n"
    )


@pytest.mark.parametrize("words", [("simulate", "--help"), ("reproduce", "--list"), ("--help",)])
def test_who_only_asks_about_simulations_is_answered(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    done = python(RUN, *words, folder=tmp_path)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout


@pytest.mark.parametrize("module", PROCESSES)
def test_no_process_of_a_site_needs_it(module: str, tmp_path: Path) -> None:
    done = python(f"import {module}", folder=tmp_path)

    assert done.returncode == 0, done.stderr
