"""A policy that is none is refused before anything runs, in one line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from controller.policies import check_policies
from controller.settings import ControllerSettings
from registry import SettingsError

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"policy": "fugaa"}, "FUGA_POLICY: unknown policy 'fugaa'; did you mean fuga?"),
        ({"policy": "drfh"}, "FUGA_POLICY: "),
        ({"policy_parameters": {"eta": "x"}}, "FUGA_POLICY: "),
        ({"policy_parameters": {"patience": -1}}, "FUGA_POLICY"),
        ({"zone_policies": {"east": {"policy": "bestfit"}}}, "FUGA_ZONE_POLICIES, zone east: "),
        ({"shadow_policy": "nope"}, "FUGA_SHADOW_POLICY: "),
        (
            {"shadow_policy": "fuga", "shadow_zone_policies": {"e": {"policy": "x"}}},
            "FUGA_SHADOW_ZONE_POLICIES, zone e: ",
        ),
    ],
)
def test_the_setting_and_the_nearest_name_are_told(given: dict[str, object], told: str) -> None:
    with pytest.raises(SettingsError) as error:
        check_policies(ControllerSettings(**given))  # type: ignore[arg-type]  # as a file gives them

    assert str(error.value).startswith(told)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("command", ["control", "api", "up", "doctor"])
def test_every_process_that_reads_it_says_so_and_does_not_start(
    command: str, tmp_path: Path
) -> None:
    given = {
        "FUGA_STATE_DIR": str(tmp_path / "state"),
        "FUGA_URL": "http://127.0.0.1:1",
        "FUGA_POLICY": "fugaa",
    }

    ended = subprocess.run(
        [sys.executable, "-m", "controller.cli.main", command],
        env={**os.environ, **given},
        capture_output=True,
        text=True,
        check=False,
    )

    assert ended.returncode != 0
    shown = (ended.stdout + ended.stderr).splitlines()
    [line] = [each for each in shown if "FUGA_POLICY:" in each]
    assert "did you mean fuga?" in line
    assert not (tmp_path / "state" / "fuga.db").exists()
