"""`fuga host set`, and who must act when a host is taken out of service."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from controller.calling.session import Session
from controller.terminal.errors import BadInputError
from controller.terminal.output import echo, print_json, print_table
from controller.terminal.output import field as column


def change_of(
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
) -> dict[str, Any]:
    """Return the body of a change to a host; what is not given stays as it is."""
    for given, taken_back, options in (
        (overrides, detected, "--override and with --detected"),
        (ratios, label_ratio, "--ratio and with --label-ratio"),
    ):
        both = sorted(set(given) & set(taken_back or ()))
        if both:
            raise BadInputError(f"{both[0]} is given both with {options}")
    body: dict[str, Any] = {
        "overrides": {**overrides, **dict.fromkeys(detected or ())},
        "reserved": dict(reserved),
        "ratios": {**ratios, **dict.fromkeys(label_ratio or ())},
    }
    body = {key: value for key, value in body.items() if value}
    if labels is not None:
        body["labels"] = labels
    if max_builds is not None:
        body["max_builds"] = max_builds
    if fence_target is not None:
        body["fence_target"] = fence_target
    if credential is not None and no_credential:
        raise BadInputError("--credential and --no-credential exclude each other")
    if credential is not None or no_credential:
        body["credential"] = credential
    if ssh_host_keys is not None:
        body["ssh_host_keys"] = ssh_host_keys
    if not body:
        raise BadInputError("there is nothing to set; `fuga host set --help` lists what can be")
    return body


def tell_warnings(host: Mapping[str, Any]) -> None:
    """Say on standard error what of a host's settings is doubtful."""
    for warning in host.get("warnings", ()):
        echo(f"warning: host {host['name']}: {warning}", err=True)


def tell_who_must_act(session: Session, host: Mapping[str, Any], message: str) -> None:
    """Say what still is on a host that takes no new VMs, and whose it is."""
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
        echo("no VM is left there: it may be switched off or removed")
        return
    echo(
        f"{sum(row['vms'] for row in rows)} VMs are still there. Nothing moves them by itself:"
        " these tenants must delete them (`fuga rm VM`; `fuga scale` asks for others elsewhere):"
    )
    columns = [column("tenant"), column("vms", right=True), column("running", right=True)]
    print_table([*columns, column("names")], rows, empty="")
