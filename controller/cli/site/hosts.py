"""`fuga host`: the hosts that VMs run on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from controller.cli.site.host_admin_state import activate, drain, fence, maintenance, remove
from controller.cli.site.host_changes import NameArgument, host_change_body, print_warnings
from controller.cli.site.host_check import CredentialOption, HostKeyOption, check
from controller.cli.site.host_views import list_hosts, show_host
from controller.session.host_texts import health_text
from controller.session.session import Session, pass_session
from controller.terminal.columns import Column, field
from controller.terminal.errors import BadInputError
from controller.terminal.pairs import unique_pairs

app = typer.Typer(name="host", no_args_is_help=True, help="Hosts that VMs run on (operators).")

OverrideOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="RESOURCE=AMOUNT", help="Capacity to use instead of the detected one; repeatable"
    ),
]
ReserveOption = Annotated[
    list[str] | None,
    typer.Option(metavar="RESOURCE=AMOUNT", help="Amount reserved for the host itself; repeatable"),
]
RatioOption = Annotated[
    list[str] | None,
    typer.Option(metavar="RESOURCE=RATIO", help="Over-commit ratio, such as vcpus=4; repeatable"),
]


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
app.command("list")(list_hosts)


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
    override: OverrideOption = None,
    reserve: ReserveOption = None,
    ratio: RatioOption = None,
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
    """Register a host. It is `starting` until the monitor reaches it."""
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
    session.answer(made, f"host {name} is {health_text(made)}")
    print_warnings(made)


@app.command("set")
@pass_session
def set_(
    session: Session,
    *,
    name: NameArgument,
    uri: Annotated[
        str | None,
        typer.Option(metavar="URI", help="Another address of the same machine; its VMs stay"),
    ] = None,
    override: OverrideOption = None,
    detected: Annotated[
        list[str] | None,
        typer.Option(
            metavar="RESOURCE", help="Remove the override, use the detected amount; repeatable"
        ),
    ] = None,
    reserve: ReserveOption = None,
    ratio: RatioOption = None,
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
            uri=uri,
        ),
    )
    offers = ", ".join(f"{each['capacity']} {each['resource']}" for each in changed["inventories"])
    session.answer(changed, f"host {name} offers {offers}")
    print_warnings(changed)


@app.command("ratios")
@pass_session
def set_label_ratios(
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
    columns = [field("label"), Column("ratios", _ratios_text)]
    session.show(session.api.items("label-ratios"), columns, empty="no label has ratios")


def _ratios_text(row: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={ratio / 1000:g}" for name, ratio in row["ratios"].items())


app.command("show")(show_host)
app.command()(drain)
app.command()(maintenance)
app.command()(activate)
app.command()(fence)
app.command()(remove)


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
