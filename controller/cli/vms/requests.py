"""`fuga request`, `requests`, `vms`, `rm`: what tenants do all day."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from controller.calling.completion import (
    complete_host,
    complete_request,
    complete_target,
    complete_vm_type,
)
from controller.calling.session import Session, listing, with_session
from controller.calling.targets import LIVE_REQUEST, find_request, find_target
from controller.calling.waiting import power_of, wait_until_gone, wait_until_running
from controller.cli.vms.changes import TtlOption, labels_and_end, told_labels
from controller.cli.vms.keys import read_public_keys, read_user_data
from controller.terminal.errors import BadInputError
from controller.terminal.output import Column, age, field, print_json, short_id, until

TimeoutOption = Annotated[
    float, typer.Option(help="Seconds that --wait lasts at most.", min=0, metavar="S")
]
LabelOption = Annotated[
    list[str] | None,
    typer.Option(metavar="KEY=VALUE", help="A word of your own, to find it by; repeat it."),
]
WithLabelOption = Annotated[
    list[str] | None, typer.Option(metavar="KEY=VALUE", help="With that label only.")
]


def waiting_for(request: Mapping[str, Any]) -> str:
    """Say in a few words why VMs of a request wait, or are not known to run."""
    waiting, unknown = request.get("waiting"), request.get("vms_unknown")
    if request["state"] not in LIVE_REQUEST:
        return "-"
    told = [f"{unknown}: unknown"] if unknown else []
    if waiting:
        told.append(f"{waiting['count']}: {waiting['reason']}")
    elif request["vms_placed"] < request["count"]:
        told.append("the next slot")
    return ", ".join(told) or "-"


def vm_state(vm: Mapping[str, Any]) -> str:
    """Say what a VM does now, and what becomes of it, in one word or two."""
    if vm["desired"] == "deleted":
        return "deleted" if vm["observed"] == "absent" and not vm["host"] else "deleting"
    if vm.get("power"):
        return power_of(vm)
    if vm["observed"] != "absent":
        return unknown(vm) or str(vm["observed"])
    if vm["desired"] == "stopped" and vm["host"] is None:
        return "stopped"
    image = vm.get("waits_for_image")
    if image is not None:
        return image_wait(image)
    return {None: "waiting", "reserved": "placed", "active": "starting"}.get(
        vm.get("assignment_state"), vm.get("assignment_state") or "waiting"
    )


def unknown(vm: Mapping[str, Any]) -> str | None:
    """Say since when nobody knows what a VM does, since its host does not answer."""
    since = vm.get("unknown_since")
    return f"unknown, {age(since)}" if since else None


def image_wait(image: Mapping[str, Any]) -> str:
    """Say how far the image is that a VM waits for."""
    if image.get("held"):
        return "its image is held"
    if image["state"] != "uploading" or not image["size_bytes"]:
        return "waits for image"
    return f"image {100 * image['uploaded_bytes'] // image['size_bytes']}%"


def rules_body(
    *,
    forbid: Sequence[str] | None,
    prefer: Sequence[str] | None,
    zone: str | None,
    anti_affinity: str | None,
    affinity: str | None,
    spread: str | None,
) -> dict[str, Any]:
    """Return the rules that options give, without those that they do not."""
    given: dict[str, Any] = {
        "forbids": list(forbid or ()),
        "prefers": list(prefer or ()),
        "zone": zone,
        "anti_affinity": _membership("--anti-affinity", anti_affinity),
        "affinity": _membership("--affinity", affinity),
        "spread": spread,
    }
    return {key: value for key, value in given.items() if value}


def _membership(option: str, given: str | None) -> dict[str, Any] | None:
    if given is None:
        return None
    group, colon, mode = given.partition(":")
    if colon and mode != "soft":
        raise BadInputError(
            f"{option} {given!r}: after the group's name there may stand :soft alone"
        )
    return {"group": group, "soft": True} if colon else {"group": group}


REQUEST_COLUMNS = (
    Column("id", lambda row: short_id(row["id"])),
    field("name"),
    field("tenant"),
    field("vm_type", "type"),
    field("count", right=True),
    field("vms_placed", "placed", right=True),
    field("vms_running", "running", right=True),
    field("state", spare=-1),
    Column("waits for", waiting_for, spare=-1),
    Column("ends in", lambda row: until(row.get("expires_at")), right=True, spare=2),
    Column("age", lambda row: age(row.get("created_at")), right=True, spare=1),
    Column("labels", told_labels, spare=3),
)

VM_COLUMNS = (
    Column("id", lambda row: short_id(row["id"])),
    field("name", spare=-3),
    field("tenant"),
    field("vm_type", "type"),
    field("host", spare=-1),
    Column("state", vm_state, spare=-2),
    field("address"),
    field("round", right=True, spare=1),
    Column("age", lambda row: age(row.get("created_at")), right=True, spare=2),
    Column("labels", told_labels, spare=3),
    field("last_error", "last error", spare=3),
)


@with_session
def request(
    session: Session,
    *,
    vm_type: Annotated[
        str,
        typer.Argument(
            metavar="TYPE", help="Of `fuga type list`.", autocompletion=complete_vm_type
        ),
    ],
    count: Annotated[int, typer.Option("-n", "--count", help="How many VMs.")] = 1,
    min_count: Annotated[
        int | None,
        typer.Option(help="At least so many at once or none, when they are placed first."),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Of the request; else one is made up.")] = None,
    tenant: Annotated[str | None, typer.Option(help="For whom; an operator must say.")] = None,
    image: Annotated[
        str | None,
        typer.Option(
            metavar="NAME[:REVISION]", help="Of `fuga image list`; else the installation's default."
        ),
    ] = None,
    requires: Annotated[
        list[str] | None,
        typer.Option(
            "--require", "--requires", metavar="LABEL", help="Only on hosts with that label."
        ),
    ] = None,
    host: Annotated[
        list[str] | None,
        typer.Option(metavar="HOST", help="Only on these hosts.", autocompletion=complete_host),
    ] = None,
    network: Annotated[
        str | None, typer.Option(help="Of `fuga network list`; else each host's own.")
    ] = None,
    ssh_key: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Public keys that these VMs let in as well."),
    ] = None,
    user_data: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="For cloud-init in these VMs; 64 KiB at most."),
    ] = None,
    hostname: Annotated[
        str | None,
        typer.Option(help="Of the guest; of several with their number. Else the VM's name."),
    ] = None,
    forbid: Annotated[
        list[str] | None, typer.Option(metavar="LABEL", help="Never on hosts with that label.")
    ] = None,
    prefer: Annotated[
        list[str] | None,
        typer.Option(metavar="LABEL", help="On hosts with that label as long as they have room."),
    ] = None,
    zone: Annotated[str | None, typer.Option(help="Only in that zone.")] = None,
    anti_affinity: Annotated[
        str | None,
        typer.Option(
            metavar="GROUP[:soft]", help="At most one VM of the group on a host; soft: if possible."
        ),
    ] = None,
    affinity: Annotated[
        str | None,
        typer.Option(
            metavar="GROUP[:soft]", help="All VMs of the group on one host; soft: if possible."
        ),
    ] = None,
    spread: Annotated[
        str | None, typer.Option(metavar="zone", help="Evenly over the zones.")
    ] = None,
    label: LabelOption = None,
    ttl: TtlOption = None,
    wait: Annotated[bool, typer.Option("--wait", help="Until all its VMs run.")] = False,
    timeout: TimeoutOption = 300,
) -> None:
    """Ask for VMs of one type. The next slot decides where they run."""
    body: dict[str, Any] = {"vm_type": vm_type, "count": count, "requires": requires or []}
    if min_count is not None:
        body["min_count"] = min_count
    if name is not None:
        body["name"] = name
    if tenant is not None:
        body["tenant"] = tenant
    if image is not None:
        body["image"] = image
    if host:
        body["hosts"] = host
    if network is not None:
        body["network"] = network
    body |= labels_and_end(label, ttl)
    if hostname is not None:
        body["hostname"] = hostname
    if ssh_key:
        body["ssh_keys"] = [key for file in ssh_key for key in read_public_keys(file)]
    if user_data is not None:
        body["user_data"] = read_user_data(user_data)
    rules = rules_body(
        forbid=forbid,
        prefer=prefer,
        zone=zone,
        anti_affinity=anti_affinity,
        affinity=affinity,
        spread=spread,
    )
    if rules:
        body["rules"] = rules
    made = session.api.post("requests", body)
    if wait:
        session.say(f"request {made['name']}: {count} × {vm_type} for tenant {made['tenant']}")
        made = wait_until_running(session.api, made, timeout_s=timeout, quiet=session.json)
        session.answer(made, f"all {made['count']} VMs of {made['name']} run")
    else:
        session.answer(
            made,
            f"request {made['name']} ({short_id(made['id'])}): {count} × {vm_type} "
            f"for tenant {made['tenant']}, decided at the next slot",
        )


@listing
def requests(
    session: Session,
    tenant: Annotated[str | None, typer.Option(help="Of that tenant only.")] = None,
    state: Annotated[str | None, typer.Option(help="In that state only.")] = None,
    label: WithLabelOption = None,
    everything: Annotated[
        bool, typer.Option("--all", "-a", help="Those that are over, too.")
    ] = False,
) -> None:
    """List requests: what is placed, what runs, what waits and why."""
    found = session.api.requests.list(tenant=tenant, state=state, label=label)
    rows = [each for each in found if everything or state or each["state"] in LIVE_REQUEST]
    session.show(
        rows,
        REQUEST_COLUMNS,
        empty="no requests. `fuga request small -n 4` asks for VMs.",
    )


@listing
def vms(
    session: Session,
    *,
    tenant: Annotated[str | None, typer.Option(help="Of that tenant only.")] = None,
    request: Annotated[
        str | None,
        typer.Option(
            help="Of that request only: name, id or the end of it.",
            autocompletion=complete_request,
        ),
    ] = None,
    host: Annotated[
        str | None, typer.Option(help="On that host only.", autocompletion=complete_host)
    ] = None,
    state: Annotated[
        str | None, typer.Option(help="running, stopped, absent, lost or unknown.")
    ] = None,
    label: WithLabelOption = None,
) -> None:
    """List VMs and where they run."""
    request_id = None
    if request is not None:
        request_id = find_request(session.api, request)["id"]
    rows = session.api.vms.list(
        tenant=tenant, request=request_id, host=host, state=state, label=label
    )
    narrowed = any((tenant, request, host, state, label))
    asks = "no such VMs." if narrowed else "no VMs. `fuga request small -n 4` asks for some."
    session.show(rows, VM_COLUMNS, empty=asks)


@with_session
def rm(
    session: Session,
    targets: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME...",
            help="Requests or VMs: name, id or the end of it.",
            autocompletion=complete_target,
        ),
    ],
    wait: Annotated[bool, typer.Option("--wait", help="Until they are gone.")] = False,
    timeout: TimeoutOption = 120,
) -> None:
    """Delete requests with all their VMs, or single VMs."""
    # All are looked up first: a slip in the third name deletes nothing.
    found = [find_target(session.api, each) for each in targets]
    answers = []
    for target in found:
        answer = session.api.delete(target.path)
        answers.append(answer)
        if not target.live:
            session.say(f"{target} was deleted before")
        elif target.kind == "request":
            placed = answer.get("vms_placed", target.record["vms_placed"])
            rest = f", {placed} VMs are being removed" if placed else ", nothing of it was placed"
            session.say(f"deleted {target}{rest}")
        else:
            session.say(f"deleted {target}, it is being removed")
    if wait:
        answers = wait_until_gone(session.api, found, timeout_s=timeout, quiet=session.json)
        session.say("gone")
    if session.json:
        print_json(answers)
