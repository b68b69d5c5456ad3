"""`fuga host`: the hosts that VMs run on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from controller.cli.site.host_changes import host_change_body, print_required_action, print_warnings
from controller.cli.site.host_check import check
from controller.client.errors import ApiProblemError
from controller.session.completion import complete_host
from controller.session.session import SearchOption, Session, list_command, pass_session
from controller.terminal.columns import Column, field
from controller.terminal.errors import BadInputError
from controller.terminal.output import echo, print_json, print_table
from controller.terminal.pairs import unique_pairs
from controller.terminal.times import clock, time_since

if TYPE_CHECKING:
    from controller.client.http import Json
    from controller.client.models import Host

app = typer.Typer(name="host", no_args_is_help=True, help="Hosts that VMs run on (operators).")

NameArgument = Annotated[
    str,
    typer.Argument(
        metavar="NAME", help="Host name (see `fuga host list`)", autocompletion=complete_host
    ),
]
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
MoveOption = Annotated[
    bool, typer.Option("--move", help="Move its VMs to other hosts while they run")
]
WaitOption = Annotated[bool, typer.Option("--wait", help="Wait until they have moved")]
#: Logs that virtlogd bounds have 2 MiB each, unless it is configured otherwise.
_BOUNDED_MIB: Final = 64


def inventory(host: Mapping[str, Any], resource: str) -> str:
    """Return committed and capacity of a host's resource."""
    for each in host["inventories"]:
        if each["resource"] == resource:
            return f"{each['committed']}/{each['capacity']}"
    return "-"


def _columns(hosts: Sequence[Host]) -> list[Column]:
    names = dict.fromkeys(each["resource"] for host in hosts for each in host["inventories"])
    return [
        field("name"),
        field("admin"),
        Column("health", _health),
        *(Column(name, _of(name), right=True) for name in names),
        Column("polled", lambda row: time_since(row.get("last_polled_at")), right=True),
        field("labels"),
        Column("confined", lambda row: row.get("security_model")),
        Column("last error", lambda row: row.get("last_error")),
    ]


def _health(host: Mapping[str, Any]) -> str:
    """Return a host's health; starting, until it is up for the first time or again."""
    starts = host["health"] == "enrolling" or host.get("returning_since")
    return "starting" if starts else str(host["health"])


def _of(resource: str) -> Callable[[Mapping[str, Any]], str]:
    return lambda host: inventory(host, resource)


def parse_amounts(option: str, given: list[str] | None) -> dict[str, int]:
    """Read ``resource=amount`` pairs."""
    amounts = []
    for each in given or ():
        resource, equals, amount = each.partition("=")
        if not (resource and equals and amount.isascii() and amount.isdigit()):
            raise BadInputError(
                f"{option}: found {each!r}, wanted RESOURCE=AMOUNT such as memory_mib=8192"
            )
        amounts.append((resource, int(amount)))
    return unique_pairs(option, amounts)


def parse_ratios(given: list[str] | None) -> dict[str, int]:
    """Read ``resource=ratio`` pairs into integer thousandths."""
    ratios = []
    for each in given or ():
        resource, _, ratio = each.partition("=")
        try:
            thousandths = round(float(ratio) * 1000)
        except (ValueError, OverflowError):
            thousandths = 0
        if not resource or thousandths <= 0:
            raise BadInputError(f"--ratio: found {each!r}, wanted RESOURCE=RATIO such as vcpus=2.5")
        ratios.append((resource, thousandths))
    return unique_pairs("--ratio", ratios)


app.command()(check)


@app.command("list")
@list_command
def list_(
    session: Session,
    search: SearchOption = None,
    address: Annotated[
        str | None, typer.Option(help="Show only the host with this IP address")
    ] = None,
    mac: Annotated[
        str | None, typer.Option(help="Show only the host with this MAC address")
    ] = None,
) -> None:
    """List hosts: state, committed/capacity of each resource, last poll."""
    hosts = list(session.api.hosts.list(search=search, address=address, mac=mac))
    empty = (
        "no such hosts."
        if any((search, address, mac))
        else "no hosts. Register one with `fuga host add NAME URI`."
    )
    session.show(hosts, _columns(hosts), empty=empty)


@app.command()
@pass_session
def add(
    session: Session,
    *,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the host")],
    uri: Annotated[
        str, typer.Argument(metavar="URI", help="libvirt URI, such as qemu+tls://host/system")
    ],
    credential: CredentialOption = None,
    ssh_host_key: HostKeyOption = None,
    label: Annotated[list[str] | None, typer.Option(help="Host label; repeatable")] = None,
    override: Annotated[
        list[str] | None,
        typer.Option(
            metavar="RESOURCE=AMOUNT",
            help="Capacity to use instead of the detected one; repeatable",
        ),
    ] = None,
    reserve: Annotated[
        list[str] | None,
        typer.Option(
            metavar="RESOURCE=AMOUNT", help="Amount reserved for the host itself; repeatable"
        ),
    ] = None,
    ratio: Annotated[
        list[str] | None,
        typer.Option(
            metavar="RESOURCE=RATIO", help="Over-commit ratio, such as vcpus=4; repeatable"
        ),
    ] = None,
    domain_type: Annotated[str, typer.Option(help="kvm or qemu (emulated)")] = "kvm",
    pool: Annotated[str, typer.Option(help="Storage pool for VM volumes")] = "default",
    network: Annotated[str, typer.Option(help="Default network of VMs on this host")] = "default",
    base_volume: Annotated[
        str | None, typer.Option(help="Volume in the pool that VM disks are based on")
    ] = None,
    memory_backing_mib: Annotated[
        int | None, typer.Option(help="Maximum real memory per VM (labs)")
    ] = None,
    max_builds: Annotated[int, typer.Option(help="VMs created at a time")] = 2,
    fence_target: Annotated[
        str | None, typer.Option(help="Argument of the fencing command, such as a BMC address")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until it is up; show errors")] = False,
    timeout: Annotated[float, typer.Option(help="Maximum seconds to wait")] = 60,
) -> None:
    """Register a host. It is `enrolling` until the monitor reaches it."""
    made = session.api.post(
        "hosts",
        {
            "name": name,
            "uri": uri,
            "credential": credential,
            "ssh_host_keys": ssh_host_key or [],
            "labels": label or [],
            "overrides": parse_amounts("--override", override),
            "reserved": parse_amounts("--reserve", reserve),
            "ratios": parse_ratios(ratio),
            "domain_type": domain_type,
            "pool": pool,
            "network": network,
            "base_volume": base_volume,
            "memory_backing_mib": memory_backing_mib,
            "max_builds": max_builds,
            "fence_target": fence_target,
        },
    )
    if wait:
        from controller.session.polling import wait_for_host  # noqa: PLC0415

        made = wait_for_host(session.api, made, timeout_s=timeout, quiet=session.json)
    session.answer(made, f"host {name} is {made['health']}")
    print_warnings(made)


@app.command("set")
@pass_session
def set_(
    session: Session,
    *,
    name: NameArgument,
    override: Annotated[
        list[str] | None,
        typer.Option(
            metavar="RESOURCE=AMOUNT",
            help="Capacity to use instead of the detected one; repeatable",
        ),
    ] = None,
    detected: Annotated[
        list[str] | None,
        typer.Option(
            metavar="RESOURCE", help="Remove the override, use the detected amount; repeatable"
        ),
    ] = None,
    reserve: Annotated[
        list[str] | None,
        typer.Option(
            metavar="RESOURCE=AMOUNT", help="Amount reserved for the host itself; repeatable"
        ),
    ] = None,
    ratio: Annotated[
        list[str] | None,
        typer.Option(
            metavar="RESOURCE=RATIO", help="Over-commit ratio, such as vcpus=4; repeatable"
        ),
    ] = None,
    label_ratio: Annotated[
        list[str] | None,
        typer.Option(
            metavar="RESOURCE", help="Remove the host's ratio, use its labels' ratio; repeatable"
        ),
    ] = None,
    label: Annotated[
        list[str] | None, typer.Option(help="Host label; replaces all labels; repeatable")
    ] = None,
    max_builds: Annotated[int | None, typer.Option(help="VMs created at a time", min=1)] = None,
    fence_target: Annotated[
        str | None, typer.Option(help="Argument of the fencing command; empty removes it")
    ] = None,
    credential: CredentialOption = None,
    no_credential: Annotated[
        bool,
        typer.Option("--no-credential", help="Use the credentials that libvirt finds by itself"),
    ] = False,
    ssh_host_key: HostKeyOption = None,
) -> None:
    """Change a host's settings. Settings that are not given stay as they are."""
    changed = session.api.patch(
        f"hosts/{name}",
        host_change_body(
            overrides=parse_amounts("--override", override),
            detected=detected,
            reserved=parse_amounts("--reserve", reserve),
            ratios=parse_ratios(ratio),
            label_ratio=label_ratio,
            labels=label,
            max_builds=max_builds,
            fence_target=fence_target,
            credential=credential,
            no_credential=no_credential,
            ssh_host_keys=ssh_host_key,
        ),
    )
    offers = ", ".join(f"{each['capacity']} {each['resource']}" for each in changed["inventories"])
    session.answer(changed, f"host {name} offers {offers}")
    print_warnings(changed)


@app.command("ratios")
@pass_session
def ratios_(
    session: Session,
    label: Annotated[
        str | None, typer.Argument(metavar="LABEL", help="Label (omit to list all)")
    ] = None,
    ratio: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RESOURCE=RATIO...", help="Ratios, such as vcpus=4 (omit to remove them)"
        ),
    ] = None,
) -> None:
    """Set or list over-commit ratios by label, for hosts without their own ratio."""
    if label is not None:
        session.api.put("label-ratios", {"label": label, "ratios": parse_ratios(ratio)})
    columns = [field("label"), Column("ratios", _ratios)]
    session.show(session.api.items("label-ratios"), columns, empty="no label has ratios")


def _ratios(row: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={ratio / 1000:g}" for name, ratio in row["ratios"].items())


@app.command()
@pass_session
def show(session: Session, name: NameArgument) -> None:
    """Show one host: settings, inventory, and the monitor's last report."""
    host = session.api.get(f"hosts/{name}")
    report = _report(session, name)
    if session.json:
        print_json({**host, "report": report})
        return
    for key, value in host.items():
        if key != "inventories":
            listed = ", ".join(value) if isinstance(value, list) else value
            if key == "fence" and value is not None:
                listed = _fencing_state(value)
            echo(f"{key:20}{'-' if listed in (None, '') else listed}")
    echo("")
    print_table(
        [
            field("resource"),
            *(field(each, right=True) for each in ("detected", "override", "reserved", "foreign")),
            Column("ratio", lambda row: row["ratio_thousandths"] / 1000, right=True),
            field("capacity", right=True),
            field("committed", right=True),
            Column("free", lambda row: row["capacity"] - row["committed"], right=True),
        ],
        host["inventories"],
        empty="no inventory yet",
    )
    echo()
    echo(_consumption(report))
    if report is not None and (network := _network(report)) is not None:
        echo(f"network: {network}")
    if report is not None and report.get("largest_console_bytes", 0) >> 20 >= _BOUNDED_MIB:
        echo(_unbounded_log_warning(report["largest_console_bytes"] >> 20))
    print_table(
        [
            field("name"),
            field("state"),
            Column("whose", lambda row: "ours" if row["assignment_id"] else "foreign"),
            field("vcpus", right=True),
            field("memory_mib", right=True),
            Column("memory used", lambda row: row["memory_used_mib"], right=True),
            Column("cpu time", lambda row: _seconds(row["cpu_time_ns"]), right=True),
        ],
        report["domains"] if report else [],
        empty="no domains",
    )


def _report(session: Session, name: str) -> Json | None:
    try:
        return session.api.get(f"hosts/{name}/report")
    except ApiProblemError as problem:
        if problem.http_status == 404:
            return None
        raise


def _network(report: Json) -> str | None:
    """Return the addresses of a host and of its interfaces; None if none is known."""
    cards = (f"{name} {mac}" for name, mac in report.get("interfaces", {}).items())
    return ", ".join([*report.get("addresses", ()), *cards]) or None


def _consumption(report: Json | None) -> str:
    """Return what the host consumed at its last poll."""
    if report is None:
        return "not polled yet"
    busy, memory, disk = (
        report[key] for key in ("cpu_busy_percent", "memory_used_mib", "disk_used_gib")
    )
    return (
        f"polled {clock(report['polled_at'])}: processors "
        f"{'-' if busy is None else f'{busy:.0f} % busy'}, memory "
        f"{'-' if memory is None else f'{memory} MiB used'}, pool "
        f"{'-' if disk is None else f'{disk} GiB used'}"
    )


def _unbounded_log_warning(size_mib: int) -> str:
    """Warn that console logs of guests may fill the host's disk."""
    return (
        f"a console's log has {size_mib} MiB: nothing bounds these logs there. Set stdio_handler"
        ' = "logd" in /etc/libvirt/qemu.conf, which is the default, and let virtlogd run'
    )


def _seconds(nanoseconds: int | None) -> str | None:
    return None if nanoseconds is None else f"{nanoseconds / 1e9:.1f} s"


@app.command()
@pass_session
def drain(
    session: Session, *, name: NameArgument, move: MoveOption = False, wait: WaitOption = False
) -> None:
    """Stop placing VMs on a host. Its VMs keep running, there or, with --move, elsewhere."""
    _take_out(session, name, "draining", "takes no new VMs", move=move, wait=wait)


@app.command()
@pass_session
def maintenance(
    session: Session, *, name: NameArgument, move: MoveOption = False, wait: WaitOption = False
) -> None:
    """Stop placing VMs on a host, for maintenance."""
    message = "is in maintenance and takes no new VMs"
    _take_out(session, name, "maintenance", message, move=move, wait=wait)


@app.command()
@pass_session
def activate(session: Session, name: NameArgument) -> None:
    """Place VMs on a host again."""
    _set_admin(session, name, "active", "takes VMs again")


@app.command()
@pass_session
def fence(
    session: Session,
    *,
    name: NameArgument,
    by_hand: Annotated[
        bool,
        typer.Option("--by-hand", help="Confirm that you switched the host off and keep it off"),
    ] = False,
) -> None:
    """Prove that a host which is down is off, so that its VMs are placed elsewhere.

    On a shared pool they keep their disks. On a pool of its own these are lost: VMs start from
    their images.
    """
    answer = session.api.post(f"hosts/{name}/fence", {"by_hand": by_hand})
    done = "its VMs wait for the next round" if by_hand else "a worker will fence it"
    session.answer(answer, f"host {name}: {done}")


def _fencing_state(fence: Mapping[str, Any]) -> str:
    """Return the state of a host's fencing."""
    if fence["last_error"] is None:
        return str(fence["state"])
    return f"{fence['state']}, {fence['attempts']} attempts: {fence['last_error']}"


@app.command()
@pass_session
def remove(session: Session, name: NameArgument) -> None:
    """Retire a host that holds no VMs. Its history is kept."""
    answer = session.api.hosts.delete(name)
    session.answer(answer, f"host {name} is retired")


@app.command()
@pass_session
def alias(
    session: Session,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Host name, or the tenant's name for it")
    ],
    tenant: Annotated[str, typer.Option(help="Tenant that uses the name")],
) -> None:
    """Translate between a host's name and a tenant's name for it."""
    found = session.api.get("host-aliases", tenant=tenant, name=name)["items"]
    columns = (field("host"), field("alias", f"to tenant {tenant}"))
    session.show(found, columns, empty=f"tenant {tenant} has no host named {name}.")


def _take_out(
    session: Session, name: str, admin: str, message: str, *, move: bool, wait: bool
) -> None:
    if wait and not move:
        raise BadInputError("--wait needs --move: without it nothing is waited for")
    if not move:
        _set_admin(session, name, admin, message)
        return
    from controller.cli.moving.plans import TIMEOUT_S, propose  # noqa: PLC0415
    from controller.session.plan_progress import wait_until_empty  # noqa: PLC0415

    session.api.hosts.change(name, {"admin": admin})
    session.print_message(f"host {name} {message}")
    body = {"kind": "evacuate", "hosts": [name]}
    propose(session, body, True, wait=wait, timeout_s=TIMEOUT_S)
    if wait:
        wait_until_empty(session.api, name)


def _set_admin(session: Session, name: str, admin: str, message: str) -> None:
    answer = session.api.hosts.change(name, {"admin": admin})
    if admin == "active":
        session.answer(answer, f"host {name} {message}")
    else:
        print_required_action(session, answer, message)
