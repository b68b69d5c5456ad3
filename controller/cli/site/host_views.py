"""`fuga host list` and `fuga host show`: what a host has, and what its last poll found."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from controller.cli.site.host_changes import NameArgument
from controller.client.errors import ApiProblemError
from controller.session.host_texts import health_text
from controller.session.session import SearchOption, Session, list_command, pass_session
from controller.terminal.columns import Column, field
from controller.terminal.output import echo, print_json, print_table
from controller.terminal.times import clock, time_since

if TYPE_CHECKING:
    from controller.client.http import Json
    from controller.client.models import Host

#: Logs that virtlogd bounds have 2 MiB each, unless it is configured otherwise.
_BOUNDED_MIB: Final = 64


def _inventory_text(host: Mapping[str, Any], resource: str) -> str:
    """Return committed and capacity of a host's resource as text: ``12/64``."""
    for each in host["inventories"]:
        if each["resource"] == resource:
            return f"{each['committed']}/{each['capacity']}"
    return "-"


def _host_columns(hosts: Sequence[Host]) -> list[Column]:
    """Return the columns of `fuga host list`, one for each resource of the hosts."""
    names = dict.fromkeys(each["resource"] for host in hosts for each in host["inventories"])
    return [
        field("name"),
        field("admin"),
        Column("health", health_text),
        *(Column(name, _inventory_cell(name), right=True) for name in names),
        Column("polled", lambda row: time_since(row.get("last_polled_at")), right=True),
        field("labels"),
        Column("confined", lambda row: row.get("security_model")),
        Column("last error", lambda row: row.get("last_error")),
    ]


def _inventory_cell(resource: str) -> Callable[[Mapping[str, Any]], str]:
    return lambda host: _inventory_text(host, resource)


@list_command
def list_hosts(
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
    session.show(hosts, _host_columns(hosts), empty=empty)


@pass_session
def show_host(session: Session, name: NameArgument) -> None:
    """Show one host: settings, inventory, and the monitor's last report."""
    host = session.api.get(f"hosts/{name}")
    report = _read_report(session, name)
    if session.json:
        print_json({**host, "report": report})
        return
    for key, value in host.items():
        if key != "inventories":
            listed = ", ".join(value) if isinstance(value, list) else value
            if key == "fence" and value is not None:
                listed = _fencing_text(value)
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
    echo(_consumption_text(report))
    if report is not None and (network := _network_text(report)) is not None:
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
            field("disk_gib", right=True),
            Column("cpu time", lambda row: _seconds_text(row["cpu_time_ns"]), right=True),
        ],
        report["domains"] if report else [],
        empty="no domains",
    )
    for domain in report["domains"] if report else []:
        if domain.get("capped_disk") is not None:
            echo(_capped_disk_text(domain))


def _read_report(session: Session, name: str) -> Json | None:
    """Return the report of the last poll of a host; None if it has not been polled."""
    try:
        return session.api.get(f"hosts/{name}/report")
    except ApiProblemError as problem:
        if problem.http_status == 404:
            return None
        raise


def _network_text(report: Json) -> str | None:
    """Return the addresses of a host and of its interfaces; None if none is known."""
    interfaces = (f"{name} {mac}" for name, mac in report.get("interfaces", {}).items())
    return ", ".join([*report.get("addresses", ()), *interfaces]) or None


def _consumption_text(report: Json | None) -> str:
    """Return a host's use of CPUs, memory and pool at its last poll, as text."""
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


def _capped_disk_text(domain: Json) -> str:
    """Say which disk of a domain counts as the whole pool."""
    return (
        f"domain {domain['name']}: its disk {domain['capped_disk']} claims more than the pool"
        " holds, and counts as all of it"
    )


def _seconds_text(nanoseconds: int | None) -> str | None:
    return None if nanoseconds is None else f"{nanoseconds / 1e9:.1f} s"


def _fencing_text(fence: Mapping[str, Any]) -> str:
    """Return the state of a host's fencing as text, after a failure with attempts and error."""
    if fence["last_error"] is None:
        return str(fence["state"])
    return f"{fence['state']}, {fence['attempts']} attempts: {fence['last_error']}"
