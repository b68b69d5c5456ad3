"""`fuga network`: the networks that VMs are attached to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from controller.session.session import Session, list_command, pass_session
from controller.terminal.columns import Column, field
from controller.terminal.errors import BadInputError
from controller.terminal.output import echo, print_json
from controller.terminal.pairs import unique_pairs

app = typer.Typer(name="network", no_args_is_help=True, help="Networks that VMs are attached to.")

NameArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="Network name (see `fuga network list`)")
]
_SOURCE = "SOURCE is a libvirt network or bridge:NAME"


def parse_source(text: str) -> dict[str, str]:
    """Parse the source of a network on hosts: a libvirt network, or ``bridge:`` and its name."""
    kind, colon, name = text.partition(":")
    if not colon:
        kind, name = "network", text
    if kind not in ("network", "bridge") or not name:
        raise BadInputError(f"found {text!r}: {_SOURCE}")
    return {"kind": kind, "name": name}


def parse_host_sources(given: list[str] | None) -> dict[str, dict[str, str] | None]:
    """Parse ``HOST=SOURCE`` pairs, the sources of a network by host; ``HOST=`` gives None."""
    return unique_pairs("HOST=SOURCE", map(_parse_host_source, given or ()))


def _parse_host_source(word: str) -> tuple[str, dict[str, str] | None]:
    host, equals, source = word.partition("=")
    if not (host and equals):
        raise BadInputError(f"found {word!r}, wanted HOST=SOURCE: {_SOURCE}")
    return host, parse_source(source) if source else None


def source_text(source: Mapping[str, Any] | None) -> str:
    """Return the source of a network on a host, in the form in which it is typed."""
    if source is None:
        return "-"
    return str(source["name"] if source["kind"] == "network" else f"bridge:{source['name']}")


def _used_addresses_text(network: Mapping[str, Any]) -> str:
    if network["subnet"] is None:
        return "-"
    return f"{network['addresses_used']}/{network['addresses']}"


def _hosts_text(network: Mapping[str, Any]) -> list[str]:
    return [f"{host}={source_text(source)}" for host, source in network["hosts"].items()]


def users_text(network: Mapping[str, Any]) -> str:
    """Return the tenants that may use a network, as text."""
    if network["tenant"] is not None:
        return f"{network['tenant']} alone"
    if network["offered_to"] is None:
        return "all"
    return ", ".join(network["offered_to"]) or "nobody"


def guest_traffic_text(network: Mapping[str, Any]) -> str:
    """Return a text that says whether VMs of a network reach each other."""
    said = "isolated" if network["isolated"] else "reach each other"
    return said if network["filtered"] else f"{said}, NOT FILTERED"


def parse_user_names(given: str) -> list[str] | None:
    """Parse the tenants that may use a network: names with commas, `all` (None) or `nobody`."""
    names = [name.strip() for name in given.split(",") if name.strip()]
    if names == ["all"]:
        return None
    if not names:
        raise BadInputError("--offer-to: found no name, wanted A,B, all or nobody")
    return [] if names == ["nobody"] else names


def print_warnings(network: Mapping[str, Any]) -> None:
    """Print warnings about a network's addresses on standard error."""
    for warning in network.get("warnings", ()):
        echo(f"warning: network {network['name']}: {warning}", err=True)


OffersOption = Annotated[
    str | None,
    typer.Option(
        "--offer-to", metavar="A,B", help="Tenants and groups that may use it; or all, or nobody"
    ),
]
IsolatedOption = Annotated[
    bool | None,
    typer.Option(
        "--isolated/--no-isolated", help="Separate its VMs (default: if several tenants may use it)"
    ),
]
FilterOption = Annotated[
    bool | None,
    typer.Option(
        "--filter/--no-filter", help="Restrict VMs to their own MAC and IP addresses (default)"
    ),
]

_COLUMNS = (
    field("name"),
    Column("for", users_text),
    Column("guests", guest_traffic_text),
    Column("default", lambda row: source_text(row["default"])),
    Column("hosts", _hosts_text),
    Column("subnet", lambda row: row["subnet"] and row["subnet"]["cidr"]),
    Column("gateway", lambda row: row["subnet"] and row["subnet"]["gateway"]),
    Column("addresses used", _used_addresses_text, right=True),
)


@app.command("add")
@pass_session
def add_network(
    session: Session,
    *,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the network")],
    source: Annotated[
        str | None, typer.Option(metavar="SOURCE", help=f"Its name on hosts; {_SOURCE}")
    ] = None,
    host: Annotated[
        list[str] | None,
        typer.Option(metavar="HOST=SOURCE", help="Its name on this host; repeatable"),
    ] = None,
    cidr: Annotated[
        str | None, typer.Option(help="IPv4 subnet to assign addresses from (default: DHCP)")
    ] = None,
    gateway: Annotated[str | None, typer.Option(help="Default route of the VMs")] = None,
    dns: Annotated[list[str] | None, typer.Option(help="DNS server; repeatable")] = None,
    exclude: Annotated[
        list[str] | None,
        typer.Option(metavar="FROM-TO", help="Addresses not to assign; repeatable"),
    ] = None,
    tenant: Annotated[
        str | None, typer.Option(help="Only tenant or group that sees and uses it")
    ] = None,
    offer_to: OffersOption = None,
    isolated: IsolatedOption = None,
    filtered: FilterOption = None,
) -> None:
    """Add a network (operators)."""
    if cidr is None and (gateway or dns or exclude):
        raise BadInputError("--gateway, --dns and --exclude need --cidr")
    subnet = {"cidr": cidr, "gateway": gateway, "dns": dns or [], "excluded": exclude or []}
    made = session.api.post(
        "networks",
        {
            "name": name,
            "default": parse_source(source) if source is not None else None,
            "hosts": parse_host_sources(host),
            "subnet": subnet if cidr is not None else None,
            "tenant": tenant,
            "offered_to": parse_user_names(offer_to) if offer_to is not None else None,
            "isolated": isolated,
            "filtered": filtered is not False,
        },
    )
    session.answer(made, f"network {name} added. Use it with `fuga request TYPE --network {name}`.")
    print_warnings(made)


@app.command("list")
@list_command
def list_networks(session: Session) -> None:
    """List networks."""
    session.show(
        session.api.items("networks"),
        _COLUMNS,
        empty="no networks: VMs use the default network of each host.",
    )


@app.command("show")
@pass_session
def show_network(session: Session, name: NameArgument) -> None:
    """Show a network."""
    network = session.api.get(f"networks/{name}")
    if session.json:
        print_json(network)
        return
    subnet = network["subnet"] or {}
    for key, value in (
        ("name", network["name"]),
        ("for", users_text(network)),
        ("guests", guest_traffic_text(network)),
        ("default", source_text(network["default"])),
        ("hosts", ", ".join(_hosts_text(network)) or "-"),
        ("subnet", subnet.get("cidr") or "none: VMs use DHCP"),
        ("gateway", subnet.get("gateway") or "-"),
        ("dns", ", ".join(subnet.get("dns", ())) or "-"),
        ("excluded", ", ".join(subnet.get("excluded", ())) or "-"),
        ("addresses used", _used_addresses_text(network)),
    ):
        echo(f"{key:16}{value}")
    print_warnings(network)


@app.command("map")
@pass_session
def map_network(
    session: Session,
    name: NameArgument,
    hosts: Annotated[
        list[str],
        typer.Argument(metavar="HOST=SOURCE...", help=f"{_SOURCE}; HOST= restores the default"),
    ],
) -> None:
    """Set the name of a network on single hosts (operators)."""
    answer = session.api.patch(f"networks/{name}", {"hosts": parse_host_sources(hosts)})
    session.answer(answer, f"network {name} is mapped on {len(hosts)} hosts")
    print_warnings(answer)


@app.command("set")
@pass_session
def set_network(
    session: Session,
    name: NameArgument,
    *,
    offer_to: OffersOption = None,
    isolated: IsolatedOption = None,
    filtered: FilterOption = None,
) -> None:
    """Change who may use a network and its filters (operators). VMs follow at next start."""
    changes: dict[str, Any] = {}
    if offer_to is not None:
        changes["offered_to"] = parse_user_names(offer_to)
    changes |= {
        key: value
        for key, value in (("isolated", isolated), ("filtered", filtered))
        if value is not None
    }
    if not changes:
        raise BadInputError("nothing to change: give --offer-to, --[no-]isolated or --[no-]filter")
    changed = session.api.patch(f"networks/{name}", changes)
    session.answer(
        changed,
        f"network {name} is for {users_text(changed)}; its VMs: {guest_traffic_text(changed)}",
    )


@app.command("remove")
@pass_session
def remove_network(session: Session, name: NameArgument) -> None:
    """Remove a network that no request and no VM uses (operators)."""
    answer = session.api.delete(f"networks/{name}")
    session.answer(answer, f"network {name} is removed")
