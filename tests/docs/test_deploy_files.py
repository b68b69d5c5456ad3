"""The files of `deploy/` are what the programs take that read them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from controller.cli.main import app
from service.settings_names import known_setting_names, load_settings, settings_classes
from tests.docs.markdown import ROOT, anchors
from tests.servers.running import FUGA

DEPLOY = ROOT / "deploy"
UNITS = sorted((DEPLOY / "systemd").iterdir())
SETTING = [
    *UNITS,
    *(DEPLOY / name for name in ("compose.yaml", "fuga.env.example", "Containerfile")),
]
NAMED = re.compile(r"\bFUGA_([A-Z_]+)")
#: of systemd-analyze; 10 is no protection at all
MAX_EXPOSED = 3.0
#: what the files use that is no setting
NO_SETTINGS = {"config", "password"}

systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed"
)


def rules() -> list[dict[str, Any]]:
    document = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text())
    return [rule for group in document["groups"] for rule in group["rules"]]


#: What follows from a database that hangs, and for how long after its alert that stays silent.
FOLLOW = {
    "FugaErrors": "15m",
    "FugaApiErrors": "15m",
    "FugaApiSlow": "15m",
    "FugaSlotsFail": "15m",
    "FugaNoLeader": None,
    "FugaSweepLate": None,
}


@pytest.mark.parametrize("name", FOLLOW)
def test_what_follows_from_an_unreachable_register_is_not_alerted_as_well(name: str) -> None:
    """Checked with promtool, too: a minute without a database is one alert."""
    cause = 'ALERTS{alertname="FugaRegisterUnreachable",alertstate="firing"}'
    named = {rule["alert"]: rule for rule in rules()}
    rule, window = named[name], FOLLOW[name]

    within = cause if window is None else f"max_over_time({cause}[{window}])"
    assert rule["expr"].endswith(f"unless on() {within}")
    looks_back = [int(each) for each in re.findall(r"\[(\d+)m\]", rule["expr"])]
    # The cause is alerted a minute after it began: what follows waits for it.
    assert minutes(rule["for"]) > minutes(named["FugaRegisterUnreachable"]["for"]) or not window
    assert window is None or minutes(window) > max(each for each in looks_back if each != 15)


def minutes(text: str) -> int:
    return int(text.removesuffix("m"))


def test_the_example_configuration_is_read_by_every_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = DEPLOY / "fuga.example.toml"
    for name in known_setting_names():
        monkeypatch.delenv(f"FUGA_{name.upper()}", raising=False)
    monkeypatch.setenv("FUGA_CONFIG", str(path))
    given = tomllib.loads(path.read_text())

    read = [load_settings(each) for each in settings_classes().values()]

    for name, value in given.items():
        found = [getattr(each, name) for each in read if name in type(each).model_fields]
        assert found, name
        meant = frozenset(value) if isinstance(value, list) else value
        assert all(each == meant for each in found), name


@pytest.mark.parametrize("path", SETTING, ids=lambda path: path.name)
def test_the_variables_that_are_set_are_settings(path: Path) -> None:
    named = {each.lower() for each in NAMED.findall(path.read_text())}

    assert named - NO_SETTINGS <= known_setting_names()


@systemd
def test_the_units_are_sound_and_leave_little_exposed(tmp_path: Path) -> None:
    copies = []
    for unit in UNITS:
        copy = tmp_path / unit.name
        copy.write_text(unit.read_text().replace("/opt/fuga/bin/fuga", FUGA))
        copies.append(str(copy))

    verified = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *copies],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (verified.returncode, verified.stdout + verified.stderr) == (0, "")
    for copy in (each for each in copies if each.endswith(".service")):
        judged = subprocess.run(
            ["systemd-analyze", "security", "--offline=true", "--no-pager", copy],
            capture_output=True,
            text=True,
            check=False,
        ).stdout
        level = re.search(r"Overall exposure level for (\S+): ([0-9.]+)", judged)
        assert level is not None, judged
        print(level[0])
        assert float(level[2]) <= MAX_EXPOSED


def test_units_and_containers_start_commands_that_there_are() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    units = "\n".join(unit.read_text() for unit in UNITS)
    started = re.findall(r"^ExecStart=/opt/fuga/bin/fuga ([\w-]+)( /\S+)?$", units, re.MULTILINE)
    assert sorted(name for name, _ in started) == [
        "api",
        "control",
        "monitor",
        "simulation-worker",
        "worker",
    ]

    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    ours = {name: each for name, each in services.items() if each["image"] == "fuga"}

    assert all(each["command"][0] in commands for each in ours.values())
    counts = {name: each.get("deploy", {}).get("replicas", 1) for name, each in ours.items()}
    several = {"control": 2, "worker": 3, "monitor": 2}
    assert counts == {"upgrade": 1, "api": 1, "api-2": 1, **several}


def test_each_unit_is_notified_watched_and_bounded() -> None:
    for name in ("api", "control", "monitor", "worker@"):
        unit = (DEPLOY / "systemd" / f"fuga-{name}.service").read_text()
        said = dict(re.findall(r"^([A-Za-z]+)=(.*)$", unit, re.MULTILINE))
        assert (said["Type"], said["NotifyAccess"]) == ("notify", "main")
        assert int(said["WatchdogSec"]) >= 60
        assert re.fullmatch(r"[1-9]G", said["MemoryMax"])


def test_each_published_port_is_one_containers() -> None:
    """podman refuses `8732-8733:8732`, and replicas would share a port."""
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    published = [port for each in services.values() for port in each.get("ports", ())]

    assert published == ["8732:8732", "8733:8732"]
    assert not any("deploy" in each for each in services.values() if each.get("ports"))


def test_each_container_that_serves_has_a_health_check_at_its_own_address() -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]

    for name, service in services.items():
        check = service["healthcheck"]
        if name == "upgrade":
            assert check == {"disable": True}
        elif service["image"] == "fuga":
            port = service["environment"]["FUGA_METRICS_LISTEN"].rpartition(":")[2]
            assert f"http://127.0.0.1:{port}/readyz" in check["test"][-1]
            compile(check["test"][-1], name, "exec")
        else:
            assert check["test"][0] in ("CMD", "CMD-SHELL")
        for needed, how in service.get("depends_on", {}).items():
            if how["condition"] == "service_healthy":
                assert "test" in services[needed]["healthcheck"]


def test_what_the_compose_file_mounts_is_there_and_its_processes_find_it() -> None:
    document = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    named = set(document["volumes"])

    for service in document["services"].values():
        for source, target, *_ in (each.split(":") for each in service.get("volumes", ())):
            assert source in named or (DEPLOY / source).is_file(), source
            assert target.startswith("/")
        if service["image"] == "fuga":
            targets = {each.split(":")[1] for each in service["volumes"]}
            assert service["environment"]["FUGA_CONFIG"] in targets
            assert (DEPLOY / service["build"]["context"] / service["build"]["dockerfile"]).is_file()
            assert set(service["depends_on"]) <= set(document["services"])


def test_each_alert_says_in_the_guide_what_to_do() -> None:
    guide = anchors(ROOT / "docs" / "operations.md")

    for rule in rules():
        document, _, anchor = rule["annotations"]["runbook"].partition("#")
        assert document == "docs/operations.md"
        assert anchor == rule["alert"].lower()
        assert anchor in guide
        assert rule["labels"]["severity"] in ("critical", "warning")
    headings = re.findall(r"^### (Fuga\w+)$", (ROOT / "docs/operations.md").read_text(), re.M)
    assert headings == [rule["alert"] for rule in rules()]


def test_the_dashboard_is_one_that_grafana_reads() -> None:
    dashboard = json.loads((DEPLOY / "grafana" / "fuga.json").read_text())

    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(ids) == len(set(ids))
    assert all(panel["targets"] and panel["title"] for panel in dashboard["panels"])


def test_a_unit_that_is_enabled_with_the_target_can_be_disabled_by_itself(tmp_path: Path) -> None:
    folder = tmp_path / "etc/systemd/system"
    shutil.copytree(DEPLOY / "systemd", folder)

    def wanted(*words: str) -> set[str]:
        subprocess.run(["systemctl", f"--root={tmp_path}", *words], check=True)
        return {each.name for each in folder.glob("fuga.target.wants/*")}

    ours = {f"fuga-{each}.service" for each in ("api", "control", "monitor")}
    workers = {"fuga-worker@1.service", "fuga-worker@2.service"}
    if shutil.which("systemctl"):
        assert wanted("enable", "fuga.target") == ours | workers
        assert wanted("disable", "fuga-api.service") == ours - {"fuga-api.service"} | workers
        assert wanted("disable", "fuga.target") == set()
    assert "Wants=" not in (folder / "fuga.target").read_text()


def test_the_package_has_the_role_of_its_processes_and_listens_to_nobody_without_tls(
    tmp_path: Path,
) -> None:
    subprocess.run([DEPLOY / "debian" / "place-files", tmp_path], check=True)

    assert tomllib.loads((tmp_path / "etc/fuga/fuga.toml").read_text())["listen"] == (
        "127.0.0.1:8732"
    )
    examples = tmp_path / "usr/share/doc/fuga-controller/examples"
    assert (examples / "run-role.sql").read_text() == (DEPLOY / "run-role.sql").read_text()


def run_script(name: str, verb: str, root: Path) -> str:
    """Run a script of the package with its absolute folders below another root."""
    text = re.sub(
        r"(?<=[ >\"])/(?=run/|etc/|var/)", f"{root}/", (DEPLOY / "debian" / name).read_text()
    )
    return subprocess.run(
        ["sh", "-c", text, name, verb],
        env={"PATH": f"{root}:/usr/bin:/bin"},
        check=True,
        capture_output=True,
        text=True,
    ).stderr


def test_before_files_change_all_that_runs_from_the_package_is_stopped(tmp_path: Path) -> None:
    (tmp_path / "run/systemd/system").mkdir(parents=True)
    (tmp_path / "systemctl").write_text(
        """#!/bin/sh
case $* in
  list-units*) printf '%s loaded\\n' fuga-a.service fuga-b.service fuga-c.service ;;
  *fuga-a.service) echo '{ path=/usr/lib/fuga/bin/fuga ; argv[]=/usr/lib/fuga/bin/fuga api ; }' ;;
  *fuga-b.service) echo '{ path=/usr/bin/fuga ; argv[]=/usr/bin/fuga db backup ; }' ;;
  *fuga-c.service) echo '{ path=/opt/fuga/bin/fuga ; argv[]=/opt/fuga/bin/fuga api ; }' ;;
esac
"""
    )
    (tmp_path / "systemctl").chmod(0o755)

    run_script("prerm", "upgrade", tmp_path)

    stopped = (tmp_path / "run/fuga-controller/stopped").read_text().split()
    assert stopped == ["fuga-a.service", "fuga-b.service"]


@pytest.mark.parametrize("folder", ["/lib", "/usr/lib"])
def test_a_purge_takes_the_links_of_enabled_units(folder: str, tmp_path: Path) -> None:
    wants = tmp_path / "etc/systemd/system/fuga.target.wants"
    wants.mkdir(parents=True)
    (wants / "fuga-worker@3.service").symlink_to(f"{folder}/systemd/system/fuga-worker@.service")

    run_script("postrm", "purge", tmp_path)

    assert not wants.exists()


def test_the_package_says_that_upgrades_of_the_schema_are_the_owners() -> None:
    said = " ".join((DEPLOY / "debian" / "postinst").read_text().replace('" >&2', "").split())
    said = said.replace('echo " ', "").replace('echo "', "")

    assert said.count("fuga db upgrade") == 2
    assert said.count("as the database's owner: fuga db upgrade") == 2
