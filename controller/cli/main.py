"""The command `fuga`: every command in one place, and how each of them ends."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NoReturn

import typer

from controller.cli import (
    audit,
    capacity,
    catalogue,
    changes,
    consoles,
    doctor,
    env,
    explain,
    hosts,
    images,
    keys,
    networks,
    pause,
    power,
    processes,
    quotas,
    requests,
    resources,
    rounds,
    shadow,
    tenants,
    tokens,
    vm_groups,
)
from controller.cli.errors import CliError, at_the_prompt
from controller.cli.reproduce import reproduce_command
from controller.cli.session import AsOption, Common, OutputOption, UrlOption
from controller.cli.simulate import simulate_command
from controller.cli.solve import solve_command
from controller.client.errors import ApiError

app = typer.Typer(
    name="fuga",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Place VMs on KVM hosts: fairly between tenants, decided in time slots.",
)


@app.callback()
def fuga(
    ctx: typer.Context,
    output: OutputOption = None,
    as_tenant: AsOption = None,
    url: UrlOption = None,
) -> None:
    """Keep what every command may be told, before its name or after it."""
    ctx.obj = Common(output, as_tenant, url)


_ASK, _RUN, _SERVE = "VMs", "This machine", "Single processes"
_LOOK, _MANAGE = "Decisions", "Operators"

app.command(rich_help_panel=_ASK)(requests.request)
app.command(rich_help_panel=_ASK)(requests.requests)
app.command(rich_help_panel=_ASK)(requests.vms)
app.command("vm-groups", rich_help_panel=_ASK)(vm_groups.vm_groups)
app.command(rich_help_panel=_ASK)(changes.scale)
app.command(rich_help_panel=_ASK)(changes.label)
app.command(rich_help_panel=_ASK)(changes.extend)
app.command(rich_help_panel=_ASK)(power.stop)
app.command(rich_help_panel=_ASK)(power.start)
app.command(rich_help_panel=_ASK)(power.reboot)
app.command(rich_help_panel=_ASK)(requests.rm)
app.command(rich_help_panel=_ASK)(explain.explain)
app.command(rich_help_panel=_ASK)(capacity.capacity)
app.command(rich_help_panel=_ASK)(consoles.console)
app.add_typer(keys.app, rich_help_panel=_ASK)
app.add_typer(networks.app, rich_help_panel=_MANAGE)
app.add_typer(rounds.app, rich_help_panel=_LOOK)
app.command(rich_help_panel=_LOOK)(rounds.replay)
app.command(rich_help_panel=_LOOK)(shadow.shadow)
app.command(rich_help_panel=_LOOK)(rounds.events)
app.command("solve", rich_help_panel=_LOOK)(solve_command)
app.command("simulate", rich_help_panel=_LOOK)(simulate_command)
app.command("reproduce", rich_help_panel=_LOOK)(reproduce_command)
app.command(rich_help_panel=_MANAGE)(pause.pause)
app.command(rich_help_panel=_MANAGE)(pause.resume)
app.add_typer(hosts.app, rich_help_panel=_MANAGE)
app.add_typer(resources.app, rich_help_panel=_MANAGE)
app.add_typer(catalogue.types, rich_help_panel=_MANAGE)
app.add_typer(images.app, rich_help_panel=_MANAGE)
app.add_typer(tenants.app, rich_help_panel=_MANAGE)
app.add_typer(quotas.app, rich_help_panel=_MANAGE)
app.add_typer(tokens.app, rich_help_panel=_MANAGE)
app.command(rich_help_panel=_MANAGE)(audit.audit)
app.command(rich_help_panel=_MANAGE)(doctor.doctor)
app.command(rich_help_panel=_RUN)(processes.up)
app.command(rich_help_panel=_RUN)(processes.down)
app.command(rich_help_panel=_RUN)(env.env)
app.command(rich_help_panel=_SERVE)(processes.api)
app.command(rich_help_panel=_SERVE)(processes.control)
app.command(rich_help_panel=_SERVE)(processes.monitor)
app.command(rich_help_panel=_SERVE)(processes.worker)
app.command("simulation-worker", rich_help_panel=_SERVE)(processes.simulation_worker)
app.add_typer(processes.db, rich_help_panel=_SERVE)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command; whatever goes wrong becomes a message and an exit status."""
    try:
        app(args=arguments, prog_name="fuga")
    except ApiError as error:
        _end(at_the_prompt(error))
    except CliError as error:
        _end(error)
    except Exception as error:
        from registry import RegistryError  # noqa: PLC0415 - slow to import, and seldom needed

        if not isinstance(error, RegistryError):
            raise
        _end(CliError(str(error)))


def _end(error: CliError) -> NoReturn:
    typer.echo(f"fuga: {error}", err=True)
    sys.exit(error.status)


if __name__ == "__main__":
    main()
