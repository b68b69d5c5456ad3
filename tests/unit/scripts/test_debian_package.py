"""What the Debian package has besides Python packages: units, configuration, manual page.

`scripts/check-deb` installs the whole package on a clean Debian.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import typer
from typer.core import TyperGroup

from controller.cli.main import app
from scripts.man_page import manual
from tests.docs.markdown import ROOT
from tests.docs.test_help import COMMANDS

DEBIAN = ROOT / "deploy" / "debian"


@pytest.fixture(scope="module")
def placed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("root")
    subprocess.run([DEBIAN / "place-files", root], check=True)
    return root


def test_units_name_nothing_that_the_package_lacks(placed: Path) -> None:
    units = sorted((placed / "lib/systemd/system").iterdir())
    text = "\n".join(unit.read_text() for unit in units)

    started = set(re.findall(r"^ExecStart=(\S+)", text, re.MULTILINE))
    read = re.findall(r"^(?:EnvironmentFile=|Environment=FUGA_CONFIG=)(/\S+)", text, re.MULTILINE)
    documents = re.findall(r"file://(/\S+)", text)
    wanted = re.findall(r"^Also=(fuga.*)", text, re.MULTILINE)

    assert started == {"/usr/lib/fuga/bin/fuga"}
    assert "/opt/" not in text
    assert {each for each in (*read, *documents) if not (placed / each[1:]).is_file()} == set()
    names = {unit.name for unit in units}
    assert {re.sub(r"@\d", "@", each) for each in wanted[0].split()} <= names
    assert not any("simulation" in name for name in names)


@pytest.mark.parametrize(
    ("path", "mode"),
    [
        ("etc/fuga/fuga.toml", 0o644),
        ("etc/fuga/fuga.env", 0o640),
        ("etc/fuga/host-credentials", 0o750),
        ("var/lib/fuga", 0o700),
    ],
)
def test_secrets_and_state_are_not_for_everybody(placed: Path, path: str, mode: int) -> None:
    assert (placed / path).stat().st_mode & 0o777 == mode


def test_the_command_leads_to_where_the_environment_will_be(placed: Path) -> None:
    assert (placed / "usr/bin/fuga").readlink() == Path("../lib/fuga/bin/fuga")


@pytest.mark.parametrize("script", ["postinst", "prerm", "postrm"])
def test_maintainer_scripts_are_posix_shell_and_end_at_the_first_error(script: str) -> None:
    text = (DEBIAN / script).read_text()

    assert text.startswith("#!/bin/sh\n")
    assert "\nset -e\n" in text
    subprocess.run(["/bin/sh", "-n", DEBIAN / script], check=True)


def test_the_manual_page_has_each_command_and_each_option() -> None:
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)

    page = "\n".join(manual(group, "1.0.0")).replace("\\-", "-")

    for path, command in COMMANDS.items():
        if path and not command.hidden and not hasattr(command, "commands"):
            assert f'.SS "fuga {" ".join(path)}' in page, path
            options = [each for each in command.params if not getattr(each, "hidden", False)]
            long = [name for each in options for name in each.opts if name.startswith("--")]
            assert [name for name in long if name not in page] == []
