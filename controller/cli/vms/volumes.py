"""`fuga volume`: disks that outlive VMs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from controller.session.completion import complete_host, complete_vm, complete_volume
from controller.session.name_lookup import LookupTarget, find_vm_of_tenant, find_volume
from controller.session.polling import poll_attempts, progress
from controller.session.session import SearchOption, Session, list_command, pass_session
from controller.terminal.columns import Column, field
from controller.terminal.errors import BadInputError, CliError, WaitExpiredError
from controller.terminal.output import short_id
from controller.terminal.sizes import parse_size_gib
from plain_text import join_names, plain

if TYPE_CHECKING:
    from controller.client.http import Client, Json

app = typer.Typer(name="volume", no_args_is_help=True, help="Disks that outlive VMs.")

VolumeArgument = Annotated[
    str,
    typer.Argument(
        metavar="VOLUME", help="Volume name, id or end of the id", autocompletion=complete_volume
    ),
]
TenantOption = Annotated[str | None, typer.Option(help="Owner of the volume (operators)")]
WaitOption = Annotated[bool, typer.Option("--wait", help="Wait until done; show errors")]
TimeoutOption = Annotated[float, typer.Option(help="Maximum seconds to wait", min=0, metavar="S")]

#: A guest has a minute to release a disk; workers and hosts want time, too.
_TIMEOUT_S: Final = 180.0
#: Names of volumes that one sentence shows.
_MAX_SHOWN: Final = 10
_WITHOUT_VM: Final = ("available", "unplaced")


def _size_text(volume: Mapping[str, Any]) -> str:
    return f"{volume['size_gib']} GiB"


def _error_text(volume: Mapping[str, Any]) -> str | None:
    """Return why a volume waits now, or else its last error; None if there is neither."""
    why: str | None = volume["trouble"] or volume["last_error"]
    return why


COLUMNS = (
    field("name"),
    Column("size", _size_text, right=True),
    field("state", spare=-2),
    field("vm", spare=-1),
    field("host"),
    field("tenant", spare=1),
)
#: In lists with a volume that is protected, that waits, or that failed.
PROTECTED_COLUMN = Column(
    "protected", lambda volume: "yes" if volume["protected"] else None, spare=-3
)
ERROR_COLUMN = Column("last error", _error_text, prose=True)


@app.command("create")
@pass_session
def create_volume(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the volume")],
    size: Annotated[
        str, typer.Option(metavar="SIZE", help="Size, such as 100GiB, 1TiB or 100 (GiB)")
    ],
    tenant: Annotated[str | None, typer.Option(help="Owner (required for operators)")] = None,
) -> None:
    """Create a volume. It takes room on a host from its first attachment on."""
    body: dict[str, Any] = {"name": name, "size_gib": parse_size_gib("--size", size)}
    if tenant is not None:
        body["tenant"] = tenant
    made = session.api.post("volumes", body)
    session.answer(
        made,
        f"volume {made['name']} ({short_id(made['id'])}): {_size_text(made)} for tenant"
        f" {made['tenant']}",
        f"attach it to a VM: fuga volume attach {made['name']} VM",
    )


@app.command("list")
@list_command
def list_volumes(
    session: Session,
    *,
    tenant: Annotated[str | None, typer.Option(help="Show only volumes of this tenant")] = None,
    vm: Annotated[
        str | None, typer.Option(help="Show only volumes of this VM", autocompletion=complete_vm)
    ] = None,
    host: Annotated[
        str | None,
        typer.Option(
            help="Show only volumes whose file is on this host", autocompletion=complete_host
        ),
    ] = None,
    state: Annotated[
        str | None, typer.Option(help="Show only volumes in this state, such as removed")
    ] = None,
    search: SearchOption = None,
) -> None:
    """List volumes: which VM has each, and the host of its file."""
    vm_id = None if vm is None else find_vm_of_tenant(session.api, vm, tenant)["id"]
    narrowed = any((tenant, vm, host, state, search))
    found = list(
        session.api.items("volumes", tenant=tenant, vm=vm_id, host=host, state=state, search=search)
    )
    session.show(
        found,
        (
            *COLUMNS,
            *((PROTECTED_COLUMN,) if any(each["protected"] for each in found) else ()),
            *((ERROR_COLUMN,) if any(map(_error_text, found)) else ()),
        ),
        empty="no such volumes."
        if narrowed
        else "no volumes. Create one with `fuga volume create data --size 100GiB`.",
    )


@app.command("show")
@pass_session
def show_volume(session: Session, volume: VolumeArgument, tenant: TenantOption = None) -> None:
    """Show a volume, and the path of its disk in a guest."""
    found = find_volume(session.api, volume, tenant)
    session.answer(found, *_status_lines(found))


@app.command("set")
@pass_session
def set_volume(
    session: Session,
    *,
    volume: VolumeArgument,
    protected: Annotated[
        bool | None,
        typer.Option("--protected/--no-protected", help="Refuse to remove it, or no longer"),
    ] = None,
    tenant: TenantOption = None,
) -> None:
    """Protect a volume from removal, or take that back."""
    if protected is None:
        raise BadInputError("nothing to change: give --[no-]protected")
    found = find_volume(session.api, volume, tenant)
    changed = session.api.patch(f"volumes/{found['id']}", {"protected": protected})
    session.answer(changed, *_status_lines(changed))


@app.command("attach")
@pass_session
def attach_volume(
    session: Session,
    *,
    volume: VolumeArgument,
    vm: Annotated[
        str,
        typer.Argument(
            metavar="VM", help="VM (name, id or end of the id)", autocompletion=complete_vm
        ),
    ],
    tenant: TenantOption = None,
    wait: WaitOption = False,
    timeout: TimeoutOption = _TIMEOUT_S,
) -> None:
    """Attach a volume to a VM. The first time, its file is made on the host of that VM."""
    found = find_volume(session.api, volume, tenant)
    target = find_vm_of_tenant(session.api, vm, found["tenant"])
    seen = session.api.post(f"volumes/{found['id']}/attach", {"vm": target["id"]})
    if wait:
        seen = _wait_for(session, seen, ("attached",), failed=_WITHOUT_VM, timeout_s=timeout)
    session.answer(seen, *_status_lines(seen))


@app.command("detach")
@pass_session
def detach_volume(
    session: Session,
    volume: VolumeArgument,
    tenant: TenantOption = None,
    wait: WaitOption = False,
    timeout: TimeoutOption = _TIMEOUT_S,
) -> None:
    """Detach a volume from its VM; unmount it in the guest before."""
    found = find_volume(session.api, volume, tenant)
    seen = session.api.post(f"volumes/{found['id']}/detach")
    if wait:
        seen = _wait_for(session, seen, _WITHOUT_VM, failed=("attached",), timeout_s=timeout)
    session.answer(seen, *_status_lines(seen))


@app.command("remove")
@pass_session
def remove_volume(
    session: Session,
    volume: VolumeArgument,
    tenant: TenantOption = None,
    wait: WaitOption = False,
    timeout: TimeoutOption = _TIMEOUT_S,
) -> None:
    """Remove a volume that no VM has, and what is on it."""
    found = find_volume(session.api, volume, tenant)
    seen = session.api.delete(f"volumes/{found['id']}")
    if wait:
        seen = _wait_for(session, seen, ("removed",), timeout_s=timeout)
    session.answer(seen, *_status_lines(seen))


def _status_lines(volume: Mapping[str, Any]) -> list[str]:
    """Return lines about a volume: its state, its place, and its disk in a guest."""
    lines = [
        f"volume {volume['name']} ({short_id(volume['id'])}): {_size_text(volume)} of tenant"
        f" {volume['tenant']}, {volume['state']}" + (", protected" if volume["protected"] else "")
    ]
    place = [f"{kind} {volume[kind]}" for kind in ("vm", "host") if volume[kind] is not None]
    if place:
        lines.append(" on ".join(place))
    if volume["vm"] is not None:
        lines.append(f"in the guest: {device_path(volume)}")
    if volume["waiting_vm"] is not None and volume["vm"] is None:
        lines.append(f"VM {volume['waiting_vm']} waits for a host with it")
    if volume["trouble"] is not None:
        lines.append(volume["trouble"])
    if volume["last_error"] is not None:
        lines.append(f"last error: {volume['last_error']}")
    return lines


def device_path(volume: Mapping[str, Any]) -> str:
    """Return the path by which a guest finds the disk of a volume."""
    return f"/dev/disk/by-id/virtio-{volume['serial']}"


def _wait_for(
    session: Session,
    volume: Json,
    goal: Collection[str],
    *,
    failed: Collection[str] = (),
    timeout_s: float,
) -> Json:
    """Poll a volume until it is in a state of ``goal``.

    Raises
    ------
    CliError
        If it gets into a state of ``failed`` instead.
    WaitExpiredError
        After ``timeout_s``; the change goes on.
    """
    seen = volume
    with progress(quiet=session.json) as report:
        for look in poll_attempts(timeout_s):
            if seen["state"] in goal:
                return seen
            why = plain(seen["last_error"] or "another call, or the end of its VM, came first")
            if seen["state"] in (*failed, "removed"):
                raise CliError(f"volume {seen['name']} is {seen['state']}: {why}")
            report(_progress_text(seen))
            with look:
                seen = session.api.get(f"volumes/{volume['id']}")
    if seen["state"] in goal:
        return seen
    raise WaitExpiredError(
        f"after {timeout_s:g} s {_progress_text(seen)}\n"
        f"The change continues: `fuga volume show {seen['name']}` shows it."
    )


def _progress_text(volume: Mapping[str, Any]) -> str:
    error = volume["last_error"]
    why = volume["trouble"] or (f"last error: {error}" if error else None)
    return plain(f"volume {volume['name']} is {volume['state']}" + (f", {why}" if why else ""))


def volumes_that_stay(api: Client, targets: Sequence[LookupTarget]) -> dict[str, tuple[str, ...]]:
    """Return the names of volumes of VMs and requests that will be deleted, by target path."""
    stay: dict[str, tuple[str, ...]] = {}
    one = str(targets[0].record["id"]) if [each.kind for each in targets] == ["vm"] else None
    for tenant in dict.fromkeys(str(target.record["tenant"]) for target in targets):
        attached: dict[str, list[str]] = {}
        for each in api.items("volumes", tenant=tenant, vm=one):
            if each["vm_id"] is not None:
                attached.setdefault(each["vm_id"], []).append(each["name"])
        if not attached:
            continue
        for target in targets:
            if target.record["tenant"] == tenant:
                keys = _vm_ids(api, target)
                stay[target.path] = tuple(name for key in keys for name in attached.get(key, ()))
    return stay


def _vm_ids(api: Client, target: LookupTarget) -> Iterable[str]:
    if target.kind == "vm":
        return [str(target.record["id"])]
    return [str(each["id"]) for each in api.items("vms", request=target.record["id"])]


def stay_text(names: Sequence[str]) -> str:
    """Return the sentence that says which volumes stay when VMs are deleted; empty for none."""
    if not names:
        return ""
    shown: list[str] = list(names[:_MAX_SHOWN])
    if len(names) > _MAX_SHOWN:
        shown.append(f"{len(names) - _MAX_SHOWN} more")
    which = "volume" if len(names) == 1 else "volumes"
    verb = "stays" if len(names) == 1 else "stay"
    return f"; {which} {join_names(shown, 'and')} {verb}"
