"""`fuga host check`: check a host from this machine before it is registered."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from controller.cli.doctor.check_result import CheckResult
from controller.cli.extras import require_libvirt
from controller.cli.site.host_findings import host_findings
from controller.client.errors import ApiError, ApiProblemError
from controller.session.completion import complete_host
from controller.session.config_option import ConfigOption
from controller.session.session import Session, pass_session
from controller.session.settings import load_settings
from controller.terminal.columns import field
from controller.terminal.errors import BadInputError, CliError
from controller.terminal.output import echo, print_json, print_table

if TYPE_CHECKING:
    from controller.settings import ControllerSettings

_PREFLIGHT: Final = (sys.executable, "-P", "-m", "monitor.preflight")
_MAX_COMPARED: Final = 3  #: hosts whose processors are read
#: What a target is made of, of a registered host, a host of a file or the options.
_FIELDS: Final = ("uri", "credential", "ssh_host_keys", "domain_type", "pool", "network")
_STARTING_S: Final = 120.0  #: for imports, on a busy machine

CredentialOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="TLS or SSH credential: a folder below FUGA_HOST_CREDENTIALS"
    ),
]
HostKeyOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY", help="Accepted SSH host key, such as 'ssh-ed25519 AAAA…'; repeatable"
    ),
]


@pass_session
def check(
    session: Session,
    config: ConfigOption = None,
    *,
    host: Annotated[
        str,
        typer.Argument(
            metavar="URI|NAME",
            help="libvirt URI, or name of a host of --file or of a registered host",
            autocompletion=complete_host,
        ),
    ],
    file: Annotated[
        Path | None,
        typer.Option("--file", metavar="FILE", help="File of hosts, as for `fuga up --hosts`"),
    ] = None,
    credential: CredentialOption = None,
    ssh_host_key: HostKeyOption = None,
    domain_type: Annotated[
        str | None, typer.Option(help="kvm (default) or qemu (emulated)")
    ] = None,
    pool: Annotated[
        str | None, typer.Option(help="Storage pool for VM volumes (default: default)")
    ] = None,
    network: Annotated[
        str | None, typer.Option(help="Default network of VMs (default: default)")
    ] = None,
    timeout: Annotated[
        float, typer.Option(help="Maximum seconds for each question to a host", min=1)
    ] = 20,
) -> None:
    """Check from this machine whether a host is ready for VMs, before or after `fuga host add`.

    Prints a line per check: ok, note or WRONG; the status is 1 if one is wrong.
    Nothing is registered. In a pool of files it makes and deletes an empty
    volume, to read the host's clock.
    """
    require_libvirt("fuga host check")
    settings = load_settings()
    registered, api_fault = _registered_hosts(session)
    given = {
        "credential": credential,
        "ssh_host_keys": ssh_host_key,
        "domain_type": domain_type,
        "pool": pool,
        "network": network,
    }
    target = _find_target_host(host, file, registered, api_fault)
    is_registered = any(each["name"] == target["name"] for each in registered)
    target |= {key: value for key, value in given.items() if value is not None}
    findings = [] if is_registered else list(_uri_findings(target["uri"], settings))
    if not findings:
        findings = _check_results(
            target,
            registered,
            folder=settings.resolved_host_credentials().folder,
            deadline_s=timeout,
        )
    if api_fault:
        why = f"not compared with registered hosts: {api_fault}"
        findings.append(CheckResult("registered hosts", True, why, note=True))
    _print_findings(session, target, findings)


def _check_results(
    target: Mapping[str, Any],
    registered: Sequence[Mapping[str, Any]],
    *,
    folder: Path,
    deadline_s: float,
) -> list[CheckResult]:
    """Check a host's name, ports, certificate and, through libvirt, the host itself."""
    from controller.cli.site.host_reach import own_name_finding, reach_findings  # noqa: PLC0415 - TLS, slow to import

    named = target.get("credential")
    credential = folder / named if named else None
    findings = list(reach_findings(target["uri"], credential))
    if any(each.about in {"name", "port"} and not each.well for each in findings):
        return findings  # libvirt would only say it again, later
    others = _comparable_hosts(target, registered)
    seen = _run_check(
        {
            "target": _target_fields(target),
            "others": [_target_fields(each) for each in others],
            "credentials": str(folder),
            "deadline_s": deadline_s,
        },
        deadline_s,
    )
    findings.extend(host_findings(target, seen, registered))
    if own := (seen.get("host") or {}).get("hostname"):
        by_name = own_name_finding(target["uri"], credential, own)
        findings.extend([] if by_name is None else [by_name])
    return findings


def _run_check(request: Mapping[str, Any], deadline_s: float) -> dict[str, Any]:
    """Check a host in a process of the monitor: the controller may not import `hypervisor`."""
    questions = 3  # the host, its pool, and the processors of others
    try:
        done = subprocess.run(
            _PREFLIGHT,
            input=json.dumps(request),
            capture_output=True,
            text=True,
            timeout=questions * deadline_s + _STARTING_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"unreachable": f"the check of {request['target']['uri']} does not end"}
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or [f"status {done.returncode}"]
        raise CliError(f"the process that asks the host ended: {last[0]}")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def _target_fields(host: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a host that `python -m monitor.preflight` needs."""
    return {"name": host["name"]} | {key: host[key] for key in _FIELDS if host.get(key) is not None}


def _find_target_host(
    host: str, file: Path | None, registered: Sequence[Mapping[str, Any]], api_fault: str | None
) -> dict[str, Any]:
    """Return the host to check: by URI, by name in a file, or by name in the register."""
    if "://" in host:
        if file is not None:
            raise BadInputError("--file needs the NAME of one of its hosts, not a URI")
        # One that is registered is checked as that: else it would be a second name of itself.
        own = (
            each for each in registered if each.get("uri") == host and each["admin"] != "retired"
        )
        return dict(next(own, {"name": host, "uri": host}))
    known: Sequence[Mapping[str, Any]] = registered
    where = "of a registered host"
    if file is not None:
        from controller.embedded.hosts_file import read_hosts_file  # noqa: PLC0415

        known, where = read_hosts_file(file), f"of a host in {file}"
    elif api_fault:
        raise CliError(f"host {host} cannot be looked up: {api_fault}")
    for each in known:
        if each["name"] == host:
            return dict(each)
    raise BadInputError(
        f"{host} is neither a URI nor the name {where}:"
        " fuga host check qemu+tls://HOST/system --credential NAME"
    )


def _registered_hosts(session: Session) -> tuple[list[dict[str, Any]], str | None]:
    """Return the registered hosts; if the API fails, no hosts and the error as text."""
    try:
        return list(session.api.items("hosts")), None
    except (ApiError, ApiProblemError, CliError) as error:
        return [], str(error).replace("\n", " ")


def _comparable_hosts(
    target: Mapping[str, Any], registered: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """Return some usable hosts of the target's domain type, to compare CPU models with."""
    kind = target.get("domain_type", "kvm")
    found = [
        each
        for each in registered
        if each["name"] != target["name"]
        and each["uri"] != target["uri"]
        and each["health"] == "up"
        and each["admin"] == "active"
        and each.get("domain_type") == kind
    ]
    return found[:_MAX_COMPARED]


def _uri_findings(uri: str, settings: ControllerSettings) -> Iterator[CheckResult]:
    """Check that the settings allow the URI of a host."""
    from registry import UriRefusedError  # noqa: PLC0415 - slow; `--help` needs none
    from registry.hosts import check_uri  # noqa: PLC0415

    try:
        check_uri(uri, settings.uri_policy())
    except UriRefusedError as error:
        yield CheckResult("URI", False, str(error))


def _print_findings(
    session: Session, target: Mapping[str, Any], findings: Sequence[CheckResult]
) -> None:
    rows = [{"level": f.level, "about": f.about, "message": f.message} for f in findings]
    wrong = sum(not each.well for each in findings)
    if session.json:
        print_json(
            {
                "name": target["name"],
                "uri": target["uri"],
                "well": not wrong,
                "findings": [each.document() for each in findings],
            }
        )
    else:
        columns = (field("level", ""), field("about"), field("message", "finding", prose=True))
        print_table(columns, rows, empty="")
        if not wrong:
            echo(f"host {target['name']} is ready")
    if wrong:
        raise CliError(f"{wrong} of {len(findings)} findings are wrong")
