"""`fuga request`, `requests`, `vms`, `rm`: ask for VMs, list and delete them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Final

import typer

from controller.cli.vms.changes import (
    CountOption,
    TtlOption,
    count_text,
    labels_and_end,
    labels_text,
    parse_count,
)
from controller.cli.vms.keys import read_public_keys, read_user_data
from controller.cli.vms.volumes import stay_text, volumes_that_stay
from controller.session.call_series import call_for_each
from controller.session.completion import (
    complete_host,
    complete_request,
    complete_target,
    complete_vm_type,
    complete_volume,
)
from controller.session.name_lookup import (
    LIVE_REQUEST,
    LookupTarget,
    find_request,
    find_reservation,
    find_targets,
)
from controller.session.polling import power_text, wait_until_gone, wait_until_running
from controller.session.session import SearchOption, Session, list_command, pass_session
from controller.terminal.columns import Column, field
from controller.terminal.errors import BadInputError
from controller.terminal.output import print_json, short_id
from controller.terminal.sizes import parse_size_gib
from controller.terminal.times import clock, parse_moment, time_since, time_until

TimeoutOption = Annotated[float, typer.Option(help="Maximum seconds to wait", min=0, metavar="S")]
LabelOption = Annotated[
    list[str] | None, typer.Option(metavar="KEY=VALUE", help="Label to find it by; repeatable")
]
WithLabelOption = Annotated[
    list[str] | None, typer.Option(metavar="KEY=VALUE", help="Show only items with this label")
]


#: Numbers with names; those between them are for finer orders.
PRIORITIES: Final[Mapping[str, int]] = MappingProxyType({"low": -10, "normal": 0, "high": 10})


def waiting_text(request: Mapping[str, Any]) -> str:
    """Return why VMs of a request wait, are unknown or are still there, in a few words."""
    lines = []
    if request["state"] in LIVE_REQUEST:
        if unknown := request.get("vms_unknown"):
            lines.append(f"{unknown}: unknown")
        if waiting := request.get("waiting"):
            lines.append(f"{waiting['count']}: {waiting['reason']}")
        elif request["vms_placed"] < request["vms_wanted"]:
            lines.append("the next slot")
    if leaving := request.get("vms_leaving"):
        lines.append(f"{leaving}: being removed")
    return ", ".join(lines) or "-"


def vm_state_text(vm: Mapping[str, Any]) -> str:
    """Return a VM's state, or the change under way, as a short text."""
    if vm["desired"] == "deleted":
        return "deleted" if vm["observed"] == "absent" and not vm["host"] else "deleting"
    if vm.get("power"):
        return power_text(vm)
    if vm["observed"] != "absent":
        until_then = f" until {clock(vm['ends_at'])}" if vm.get("ends_at") else ""
        borrowed = ", borrowed" if vm.get("borrowed") else ""
        return f"{observed_state_text(vm)}{borrowed}{until_then}"
    if vm["desired"] == "stopped" and vm["host"] is None:
        return "stopped"
    image = vm.get("waits_for_image")
    if image is not None:
        return image_wait_text(image)
    return {None: "waiting", "reserved": "placed", "active": "starting"}.get(
        vm.get("assignment_state"), vm.get("assignment_state") or "waiting"
    )


def vm_host_text(vm: Mapping[str, Any]) -> str | None:
    """Return a VM's host, and during a move also the destination."""
    to = vm.get("moving_to")
    return vm["host"] if to is None else f"{vm['host']} → {to}"


def observed_state_text(vm: Mapping[str, Any]) -> str:
    """Return a VM's observed state, or since when it is unknown or its guest is paused."""
    for key, word in (("unknown_since", "unknown"), ("paused_since", "paused")):
        if vm.get(key):
            return f"{word}, {time_since(vm[key])}"
    return str(vm["observed"])


def image_wait_text(image: Mapping[str, Any]) -> str:
    """Return the progress of the image that a VM waits for."""
    if image.get("held"):
        return "image held"
    if image["state"] != "uploading" or not image["size_bytes"]:
        return "waiting for image"
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
    """Return the rules of a request from the options, as the API's body."""
    given: dict[str, Any] = {
        "forbids": list(forbid or ()),
        "prefers": list(prefer or ()),
        "zone": zone,
        "anti_affinity": _parse_membership("--anti-affinity", anti_affinity),
        "affinity": _parse_membership("--affinity", affinity),
        "spread": spread,
    }
    return {key: value for key, value in given.items() if value}


def _parse_membership(option: str, given: str | None) -> dict[str, Any] | None:
    if given is None:
        return None
    group, colon, mode = given.partition(":")
    if colon and mode != "soft":
        raise BadInputError(f"{option} {given!r}: wanted GROUP or GROUP:soft")
    return {"group": group, "soft": True} if colon else {"group": group}


def _parse_priority(given: str) -> int:
    if given in PRIORITIES:
        return PRIORITIES[given]
    try:
        return int(given)
    except ValueError:
        names = ", ".join(PRIORITIES)
        raise BadInputError(
            f"--priority {given!r}: wanted {names}, or a whole number; the highest goes first"
        ) from None


def _parse_new_volume(given: str) -> dict[str, Any]:
    """Parse NAME:SIZE."""
    name, colon, size = given.partition(":")
    if not colon or not name:
        raise BadInputError(f"--new-volume {given!r}: type NAME:SIZE, such as data:100GiB")
    return {"name": name, "size_gib": parse_size_gib("--new-volume", size)}


REQUEST_COLUMNS = (
    Column("id", lambda row: short_id(row["id"])),
    field("name"),
    field("tenant"),
    field("vm_type", "type"),
    Column("count", count_text, right=True),
    field("vms_placed", "placed", right=True),
    field("vms_running", "running", right=True),
    field("state", spare=-1),
    Column("waits for", waiting_text, spare=-1),
    Column("ends in", lambda row: time_until(row.get("expires_at")), right=True, spare=2),
    Column("age", lambda row: time_since(row.get("created_at")), right=True, spare=1),
    Column("labels", labels_text, spare=3),
)

VM_COLUMNS = (
    Column("id", lambda row: short_id(row["id"])),
    field("name", spare=-3),
    field("tenant"),
    field("vm_type", "type"),
    Column("host", vm_host_text, spare=-1),
    Column("state", vm_state_text, spare=-2),
    field("address"),
    field("round", right=True, spare=1),
    Column("age", lambda row: time_since(row.get("created_at")), right=True, spare=2),
    Column("labels", labels_text, spare=3),
    field("last_error", "last error", spare=3),
)
#: Of VMs that are gone; `fuga events --subject ID` says who deleted one.
GONE_COLUMNS = (
    field("id"),
    field("name"),
    field("tenant"),
    field("vm_type", "type", spare=3),
    Column("created at", lambda row: clock(row["created_at"]), spare=2),
    Column("gone since", lambda row: clock(row["deleted_at"]), spare=-1),
)
_RECENTLY: Final = "7d"


@pass_session
def request(
    session: Session,
    *,
    vm_type: Annotated[
        str,
        typer.Argument(
            metavar="TYPE", help="VM type (see `fuga type list`)", autocompletion=complete_vm_type
        ),
    ],
    count: CountOption = "1",
    min_count: Annotated[
        int | None, typer.Option(help="Place this many VMs in the first round, or none")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Request name (generated if omitted)")] = None,
    tenant: Annotated[str | None, typer.Option(help="Tenant (required for operators)")] = None,
    image: Annotated[
        str | None,
        typer.Option(
            metavar="NAME[:REVISION]",
            help="Image (see `fuga image list`; default: set by the site)",
        ),
    ] = None,
    requires: Annotated[
        list[str] | None,
        typer.Option(
            "--require",
            "--requires",
            metavar="LABEL",
            help="Only hosts with this label; repeatable",
        ),
    ] = None,
    host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST", help="Only this host; repeatable", autocompletion=complete_host
        ),
    ] = None,
    network: Annotated[
        str | None,
        typer.Option(help="Network (see `fuga network list`; default: set by each host)"),
    ] = None,
    ssh_key: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Additional public key file for these VMs; repeatable"),
    ] = None,
    user_data: Annotated[
        Path | None, typer.Option(metavar="FILE", help="cloud-init user data, at most 64 KiB")
    ] = None,
    hostname: Annotated[
        str | None, typer.Option(help="Guest hostname, numbered for several VMs (default: VM name)")
    ] = None,
    forbid: Annotated[
        list[str] | None, typer.Option(metavar="LABEL", help="No hosts with this label; repeatable")
    ] = None,
    prefer: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LABEL", help="Hosts with this label while they have room; repeatable"
        ),
    ] = None,
    zone: Annotated[str | None, typer.Option(help="Only hosts in this zone")] = None,
    anti_affinity: Annotated[
        str | None,
        typer.Option(
            metavar="GROUP[:soft]", help="At most one VM of this group per host; :soft if possible"
        ),
    ] = None,
    affinity: Annotated[
        str | None,
        typer.Option(
            metavar="GROUP[:soft]", help="All VMs of this group on one host; :soft if possible"
        ),
    ] = None,
    spread: Annotated[
        str | None, typer.Option(metavar="zone", help="Spread evenly over zones")
    ] = None,
    priority: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|N",
            help="Place among the tenant's own requests: low, normal, high, or -100 to 100",
        ),
    ] = None,
    spot: Annotated[
        bool, typer.Option("--spot", help="Use spare room; the VMs end when others need it")
    ] = False,
    reservation: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Draw on this reservation (see `fuga reservations`)"),
    ] = None,
    volume: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Start its only VM with this volume; repeatable",
            autocompletion=complete_volume,
        ),
    ] = None,
    new_volume: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME:SIZE", help="Create a volume for each VM, such as data:100GiB; repeatable"
        ),
    ] = None,
    label: LabelOption = None,
    ttl: TtlOption = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until all VMs run that are not borrowed")
    ] = False,
    timeout: TimeoutOption = 300,
) -> None:
    """Request VMs of one type. The next slot decides where they run."""
    numbers = parse_count(count)
    body: dict[str, Any] = {"vm_type": vm_type, **numbers, "requires": requires or []}
    given = {
        "min_count": min_count,
        "name": name,
        "tenant": tenant,
        "image": image,
        "hosts": host or None,
        "network": network,
        "hostname": hostname,
        "priority": None if priority is None else _parse_priority(priority),
        "spot": spot or None,
        "volumes": volume or None,
        "new_volumes": [_parse_new_volume(each) for each in new_volume or ()] or None,
    }
    body |= {key: value for key, value in given.items() if value is not None}
    if reservation is not None:
        body["reservation"] = find_reservation(session.api, reservation)["id"]
    body |= labels_and_end(label, ttl)
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
        session.print_message(
            f"request {made['name']}: {count} × {vm_type} for tenant {made['tenant']}"
        )
        made = wait_until_running(session.api, made, timeout_s=timeout, quiet=session.json)
        kind = "VMs" if made.get("max_count") is None else "VMs that are not borrowed"
        session.answer(made, f"all {made['count']} {kind} of {made['name']} run")
    else:
        session.answer(
            made,
            f"request {made['name']} ({short_id(made['id'])}): {count} × {vm_type} "
            f"for tenant {made['tenant']}, decided at the next slot",
        )


@list_command
def requests(
    session: Session,
    *,
    tenant: Annotated[str | None, typer.Option(help="Show only items of this tenant")] = None,
    state: Annotated[str | None, typer.Option(help="Show only requests in this state")] = None,
    search: SearchOption = None,
    label: WithLabelOption = None,
    everything: Annotated[
        bool, typer.Option("--all", "-a", help="Include requests that have ended")
    ] = False,
) -> None:
    """List requests: what is placed, what runs, what waits and why."""
    found = session.api.requests.list(tenant=tenant, state=state, search=search, label=label)
    rows = [each for each in found if everything or state or each["state"] in LIVE_REQUEST]
    session.show(
        rows, REQUEST_COLUMNS, empty="no requests. Request VMs with `fuga request small -n 4`."
    )


@list_command
def vms(
    session: Session,
    *,
    tenant: Annotated[str | None, typer.Option(help="Show only items of this tenant")] = None,
    request: Annotated[
        str | None,
        typer.Option(
            help="Show only VMs of this request (name, id or end of the id)",
            autocompletion=complete_request,
        ),
    ] = None,
    host: Annotated[
        str | None, typer.Option(help="Show only VMs on this host", autocompletion=complete_host)
    ] = None,
    state: Annotated[
        str | None, typer.Option(help="Show only running, stopped, absent, lost or unknown VMs")
    ] = None,
    address: Annotated[
        str | None, typer.Option(help="Show only VMs with this IPv4 address")
    ] = None,
    mac: Annotated[str | None, typer.Option(help="Show only the VM with this MAC address")] = None,
    search: SearchOption = None,
    label: WithLabelOption = None,
    everything: Annotated[
        bool, typer.Option("--all", "-a", help="Include VMs that are gone")
    ] = False,
    deleted: Annotated[
        bool, typer.Option("--deleted", help="Show only VMs that are gone, since --since")
    ] = False,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="With --deleted: the last 12h or 7d, or since a time (default: 7d)"
        ),
    ] = None,
) -> None:
    """List VMs and where they run."""
    if since is not None and not deleted:
        raise BadInputError("--since needs --deleted: it is the time since which VMs are gone")
    if deleted and everything:
        raise BadInputError("give only one of --all and --deleted")
    request_id = None
    if request is not None:
        request_id = find_request(session.api, request)["id"]
    rows = session.api.vms.list(
        tenant=tenant,
        request=request_id,
        host=host,
        state=state,
        address=address,
        mac=mac,
        search=search,
        label=label,
        include_deleted=everything or None,
        deleted_since=_deleted_at_text(since) if deleted else None,
    )
    narrowed = any((tenant, request, host, state, address, mac, search, label))
    if deleted:
        none = f"no such VM is gone since {since or _RECENTLY}; look further back with --since"
        session.show(rows, GONE_COLUMNS, empty=none)
        return
    notice = "no such VMs." if narrowed else "no VMs. Request some with `fuga request small -n 4`."
    session.show(rows, VM_COLUMNS, empty=notice)


def _deleted_at_text(since: str | None) -> str:
    return parse_moment(since or _RECENTLY, "--since", datetime.now(UTC)).isoformat()


@pass_session
def rm(
    session: Session,
    targets: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME...",
            help="Requests or VMs (names, ids or ends of ids)",
            autocompletion=complete_target,
        ),
    ],
    wait: Annotated[bool, typer.Option("--wait", help="Wait until they are gone")] = False,
    timeout: TimeoutOption = 120,
) -> None:
    """Delete requests with all their VMs, or single VMs."""
    # All are looked up first: a slip in the third name deletes nothing.
    found = find_targets(session.api, targets)
    live = [] if session.json else [target for target in found if target.is_live]
    stay = volumes_that_stay(session.api, live)
    answers = []
    for target, answer in call_for_each(
        session, found, lambda target: session.api.delete(target.path)
    ):
        if session.json:
            answers.append(answer)
        staying = stay_text(stay.get(target.path, ()))
        session.print_message(_deletion_text(target, answer) + staying)
    if wait:
        answers = wait_until_gone(session.api, found, timeout_s=timeout, quiet=session.json)
        session.print_message("gone")
    if session.json:
        print_json(answers)


def _deletion_text(target: LookupTarget, answer: Mapping[str, Any]) -> str:
    if not target.is_live:
        return f"{target} is already deleted"
    if target.kind == "vm":
        return f"deleted {target}; it is being removed"
    leaving = answer.get("vms_leaving")
    rest = f"{leaving} VMs are being removed" if leaving else "no VM of it was placed"
    return f"deleted {target}, {rest}"
