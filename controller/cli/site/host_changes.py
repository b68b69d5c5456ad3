"""`fuga host set`, and which tenants must act when a host is taken out of service."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from controller.session.completion import complete_host
from controller.session.session import Session
from controller.terminal.columns import field as column
from controller.terminal.errors import BadInputError
from controller.terminal.output import echo, print_json, print_table

NameArgument = Annotated[
    str,
    typer.Argument(
        metavar="NAME", help="Host name (see `fuga host list`)", autocompletion=complete_host
    ),
]


def host_change_body(
    *,
    overrides: Mapping[str, int],
    detected: list[str] | None,
    reserved: Mapping[str, int],
    ratios: Mapping[str, int],
    label_ratio: list[str] | None,
    labels: list[str] | None,
    max_builds: int | None,
    fence_target: str | None = None,
    credential: str | None = None,
    no_credential: bool = False,
    ssh_host_keys: list[str] | None = None,
    uri: str | None = None,
) -> dict[str, Any]:
    """Return the body of a change to a host: only the given fields change."""
    for given, taken_back, options in (
        (overrides, detected, "--override and --detected"),
        (ratios, label_ratio, "--ratio and --label-ratio"),
    ):
        both = sorted(set(given) & set(taken_back or ()))
        if both:
            raise BadInputError(f"{both[0]}: give only one of {options}")
    body: dict[str, Any] = {
        "overrides": {**overrides, **dict.fromkeys(detected or ())},
        "reserved": dict(reserved),
        "ratios": {**ratios, **dict.fromkeys(label_ratio or ())},
    }
    body = {key: value for key, value in body.items() if value}
    if uri is not None:
        body["uri"] = uri
    if labels is not None:
        body["labels"] = labels
    if max_builds is not None:
        body["max_builds"] = max_builds
    if fence_target is not None:
        body["fence_target"] = fence_target
    if credential is not None and no_credential:
        raise BadInputError("give only one of --credential and --no-credential")
    if credential is not None or no_credential:
        body["credential"] = credential
    if ssh_host_keys is not None:
        body["ssh_host_keys"] = ssh_host_keys
    if not body:
        raise BadInputError("nothing to set; see `fuga host set --help`")
    return body


def print_warnings(host: Mapping[str, Any]) -> None:
    """Print warnings about a host's settings on standard error."""
    for warning in host.get("warnings", ()):
        echo(f"warning: host {host['name']}: {warning}", err=True)


def print_required_action(session: Session, host: Mapping[str, Any], message: str) -> None:
    """Print the VMs that remain on a host that takes no new ones, by tenant."""
    held: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for vm in session.api.items("vms", host=host["name"]):
        held[vm["tenant"]].append(vm)
    rows = [
        {
            "tenant": tenant,
            "vms": len(vms),
            "running": sum(vm["observed"] == "running" for vm in vms),
            "names": [vm["name"] for vm in vms],
        }
        for tenant, vms in sorted(held.items())
    ]
    if session.json:
        print_json({**host, "occupants": rows})
        return
    echo(f"host {host['name']} {message}")
    if not rows:
        echo("it holds no VMs: you can switch it off or remove it")
        return
    echo(
        f"{sum(row['vms'] for row in rows)} VMs are still there."
        f" `fuga plan evacuate {host['name']}` plans where they go, `--approve` moves them;"
        " or their tenants delete them (`fuga rm VM`):"
    )
    columns = [column("tenant"), column("vms", right=True), column("running", right=True)]
    print_table([*columns, column("names")], rows, empty="")
