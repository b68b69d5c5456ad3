"""`fuga doctor`: the settings in force, and what is wrong."""

from __future__ import annotations

import difflib
import os
import stat
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

from controller.cli.doctor.certificates import certificate_findings, credential_findings
from controller.cli.doctor.check_result import CheckResult
from controller.cli.doctor.differences import print_differences
from controller.cli.doctor.encryption import encryption_findings
from controller.cli.doctor.guests import guest_findings
from controller.cli.doctor.hosts import (
    confinement_findings,
    exposure_findings,
    failure_findings,
    host_exclusion_reason,
    move_findings,
)
from controller.cli.doctor.logins import login_findings
from controller.cli.doctor.loops import loop_findings
from controller.cli.doctor.register import register_findings
from controller.cli.doctor.settings import process_settings_findings
from controller.cli.doctor.signing import signing_findings
from controller.cli.extras import MissingExtraError, require_libvirt
from controller.cli.operating.pause import pause_notice
from controller.cli.operating.status import (
    clock_sentence,
    healthy_sentence,
    overdue_sentence,
    release_sentence,
)
from controller.client.errors import ApiError
from controller.session.config_option import ConfigOption
from controller.session.credentials import FILE_NAME
from controller.session.session import Session, pass_session
from controller.session.settings import load_as, load_settings
from controller.terminal.columns import field
from controller.terminal.errors import BadInputError, CliError
from controller.terminal.output import echo, print_json, print_table

if TYPE_CHECKING:
    from pydantic_settings import BaseSettings

    from controller.settings import ControllerSettings
    from registry.hosts import FailurePolicy


#: What is late, as the doctor calls it.
_DONE_BY: Final = {"decide": "control centre", "build": "workers", "poll": "monitors"}

S = TypeVar("S", bound="BaseSettings")


@pass_session
def doctor(
    session: Session,
    config: ConfigOption = None,
    *,
    hosts: Annotated[
        bool, typer.Option("--hosts", help="List differences between hosts and ledger")
    ] = False,
    hashes: Annotated[
        bool, typer.Option("--hashes", help="Compare the SHA-256 of image files")
    ] = False,
    history: Annotated[
        bool, typer.Option("--history", help="Check ended VMs, requests and events, too")
    ] = False,
    repair: Annotated[
        bool,
        typer.Option(
            "--repair",
            help="Delete stray image files, free stray addresses; with --hosts: repair differences",
        ),
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="With --hosts --repair: repair all without a question")
    ] = False,
) -> None:
    """Check settings, database, images and hosts, and print what is wrong."""
    if hosts and hashes:
        raise BadInputError("--hashes cannot be used with --hosts")
    if hosts and history:
        raise BadInputError("--history cannot be used with --hosts")
    if hosts:
        print_differences(session, repair=repair, yes=yes)
        return
    from placement.packing.compiled_loops import loops  # noqa: PLC0415 - as the next
    from registry.hosts import FailurePolicy  # noqa: PLC0415 - slow; `--help` needs none

    settings = load_settings()
    rows = list(_setting_rows(settings, os.environ))
    findings = [
        *_misspelt_setting_findings(os.environ),
        *_policy_findings(settings),
        *loop_findings(loops()),
        *process_settings_findings(session),
        *register_findings(settings, hashes=hashes, repair=repair, history=history),
        *signing_findings(settings),
        *(
            CheckResult(*each)
            for each in encryption_findings(settings, session.connection.urls, os.environ)
        ),
        *_credentials_findings(settings.state_dir),
        *_package_findings(),
        *credential_findings(settings.resolved_host_credentials(), datetime.now(UTC)),
        *certificate_findings(session, settings, datetime.now(UTC)),
        *_host_findings(session, FailurePolicy(settings.on_failure)),
        *_stored_login_findings(session, settings),
    ]
    if session.json:
        print_json({"settings": rows, "findings": [each.document() for each in findings]})
    else:
        columns = (
            field("setting"),
            field("of", spare=1),
            field("value", prose=True),
            field("from"),
        )
        print_table(columns, rows, empty="no settings")
        echo("")
        print_table(
            (field("level", ""), field("about"), field("message", "finding", prose=True)),
            [{"level": f.level, "about": f.about, "message": f.message} for f in findings],
            empty="",
        )
    wrong = sum(not each.well for each in findings)
    if wrong:
        raise CliError(f"{wrong} of {len(findings)} findings are wrong")


def _setting_rows(
    settings: ControllerSettings, environ: Mapping[str, str]
) -> Iterator[dict[str, Any]]:
    """Yield each setting of each process with its value, secrets masked, and its source."""
    from controller.embedded.environment import embedded_settings  # noqa: PLC0415
    from controller.embedded.state import SetupRecord, StateDir  # noqa: PLC0415
    from service.settings_in_force import shown_value  # noqa: PLC0415
    from service.settings_names import settings_classes  # noqa: PLC0415

    memory = SetupRecord.load(StateDir(settings.state_dir))
    embedded = {}
    if memory.hosts_from:
        embedded = embedded_settings(environ, memory.lab_uris, image=memory.default_image)
    given = {name.upper() for name, value in environ.items() if value}
    names: set[str] = set()
    shared = set.intersection(*(set(each.model_fields) for each in settings_classes().values()))
    for process, each in settings_classes().items():
        found = load_as(each)
        for name in each.model_fields:
            if name in names:
                continue
            names.add(name)
            value = getattr(found, name)
            if f"FUGA_{name.upper()}" in given:
                source = f"FUGA_{name.upper()}"
            elif name in found.model_fields_set:
                source = environ.get("FUGA_CONFIG") or "file"
            elif name in embedded:
                value, source = embedded[name], "fuga up"
            else:
                source = "default"
            whose = "all" if name in shared else process
            yield {
                "setting": name,
                "of": whose,
                "value": shown_value(name, value) or "-",
                "from": source,
            }


def _misspelt_setting_findings(environ: Mapping[str, str]) -> Iterator[CheckResult]:
    """Find environment variables whose names look like misspelt settings."""
    from service.settings_names import known_setting_names  # noqa: PLC0415

    names = known_setting_names()
    for name in (each[5:].lower() for each in environ if each.startswith("FUGA_")):
        near = difflib.get_close_matches(name, names, n=1, cutoff=0.85)
        if name not in names and near:
            yield CheckResult(
                "settings", False, f"environment: {name} is not a setting; did you mean {near[0]}?"
            )


def _policy_findings(settings: ControllerSettings) -> Iterator[CheckResult]:
    """Find policies of the settings that do not exist or refuse their parameters."""
    from controller.policies import check_policies  # noqa: PLC0415
    from registry import SettingsError  # noqa: PLC0415

    try:
        check_policies(settings)
    except SettingsError as error:
        yield CheckResult("policies", False, f"{error}; neither API nor control centre starts")


def _package_findings() -> Iterator[CheckResult]:
    try:
        require_libvirt("what reaches hosts (`fuga monitor`, `fuga worker`) on this machine")
    except MissingExtraError as error:
        yield CheckResult("packages", True, str(error), note=True)


def _credentials_findings(folder: Path) -> Iterator[CheckResult]:
    """Check that others cannot read the tokens in the state folder of `fuga up`."""
    path = folder / FILE_NAME
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except FileNotFoundError:
        return
    if mode & 0o077:
        yield CheckResult("credentials", False, f"others may read {path}: chmod 600 {path}")
    else:
        yield CheckResult("credentials", True, f"{path} is readable by its owner alone")


def _lab_uris() -> tuple[str, ...]:
    """Return the libvirt URIs of the lab hosts that `fuga up` started on this machine."""
    from controller.embedded.state import SetupRecord, StateDir  # noqa: PLC0415

    return SetupRecord.load(StateDir(load_settings().state_dir)).lab_uris


def _liveness_findings(session: Session) -> Iterator[CheckResult]:
    """Report the leader and overdue work, like `fuga status`."""
    try:
        found = session.api.get("status")
    except ApiError:  # an older API, or none: another finding reports that
        return
    if sentence := clock_sentence(found):
        yield CheckResult("clock", False, sentence)
    if sentence := release_sentence(found):
        yield CheckResult("release", False, sentence)
    elif found.get("release"):
        yield CheckResult("release", True, f"all processes run {found['release']}")
    for sentence in found.get("disks", ()):
        yield CheckResult("disks", False, sentence)
    for late in found["late"]:
        yield CheckResult(_DONE_BY[late["work"]], False, overdue_sentence(late))
    if found["healthy"] and found["leader"]:
        yield CheckResult("processes", True, healthy_sentence(found))


def _stored_login_findings(session: Session, settings: ControllerSettings) -> Iterator[CheckResult]:
    try:
        provider = session.api.get("login")["provider"]
        tenants = list(session.api.items("tenants"))
    except (ApiError, CliError):  # another finding reports that
        return
    yield from login_findings(settings.oidc_rules, provider, tenants)


def _worker_settings() -> Any:
    from service.settings_names import settings_classes  # noqa: PLC0415

    return load_as(settings_classes()["worker"])


def _host_findings(session: Session, on_failure: FailurePolicy) -> Iterator[CheckResult]:
    """Check the API and its hosts: why they get no VMs, filters, confinement, guests, moves."""
    try:
        url = session.api.url
        hosts = list(session.api.items("hosts"))
    except (ApiError, CliError) as error:
        yield CheckResult("API", False, str(error).replace("\n", " "))
        return
    token = "a token" if session.connection.token else "no token"
    yield CheckResult("API", True, f"{url} answers, with {token}")
    for host in hosts:
        if trouble := host_exclusion_reason(host):
            yield CheckResult(f"host {host['name']}", False, trouble)
        if host.get("can_filter") is False:
            why = "its libvirt has no network filters (nwfilter): no VM is created there"
            yield CheckResult(f"host {host['name']}", False, why)
    yield from exposure_findings(hosts, _lab_uris())
    yield from confinement_findings(hosts)
    yield from failure_findings(hosts, on_failure)
    workers = _worker_settings()
    networks = list(session.api.items("networks"))
    yield from guest_findings(workers, hosts, networks, _lab_uris())
    yield from move_findings(workers, hosts, list(session.api.items("vm-types")))
    if notice := pause_notice(session):
        yield CheckResult("slot loop", False, notice)
    yield from _liveness_findings(session)
    well = sum(each["health"] == "up" for each in hosts)
    yield CheckResult("hosts", bool(hosts), f"{well} of {len(hosts)} hosts are up")
