"""`fuga api`, `control`, `monitor`, `worker`, `simulation-worker`, `db`, `up`, `down`."""

from __future__ import annotations

import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from controller.calling.config import ConfigOption
from controller.calling.settings import load_settings
from controller.cli.extras import need_simulation
from controller.terminal.errors import BadInputError, CliError
from controller.terminal.output import echo

db = typer.Typer(name="db", no_args_is_help=True, help="The register center's database.")


def api(config: ConfigOption = None) -> None:
    """Serve the REST API (one process)."""
    from controller import rest  # noqa: PLC0415

    load_settings()  # what is wrong with them is told before anything is imported that reads them
    raise typer.Exit(rest.main())


def control(config: ConfigOption = None) -> None:
    """Run the control centre: it decides every slot (one process)."""
    from controller.centre import slot_loop  # noqa: PLC0415

    load_settings()
    slot_loop.main()


def monitor(config: ConfigOption = None) -> None:
    """Poll the hosts (one process)."""
    _become("monitor")


def worker(config: ConfigOption = None) -> None:
    """Create and delete VMs (one process)."""
    _become("workers")


def simulation_worker(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER",
            help="What the fleet shares; only simulations below it are run, and who may write"
            " there may do what this process may.",
        ),
    ],
    jobs: Annotated[
        int, typer.Option("--jobs", "-j", help="Runs at a time; 0: one for each core.", min=0)
    ] = 0,
    config: ConfigOption = None,
) -> None:
    """Run what `fuga simulate --celery` submits (one process, and one for each run).

    It needs FUGA_BROKER_URL, and neither database nor hosts.

    SIGTERM or Ctrl-C: its runs write what they have, and other workers go on from there.
    """
    need_simulation("fuga simulation-worker")
    from controller.simulations.queue import NoFleetError  # noqa: PLC0415
    from controller.simulations.worker import run  # noqa: PLC0415
    from service import ListenerError  # noqa: PLC0415

    if not folder.is_dir():
        raise BadInputError(f"{folder}: there is no folder of that name on this machine")
    try:
        status = run(load_settings(), folder, jobs=jobs or os.cpu_count() or 1)
    except (NoFleetError, ListenerError) as error:
        raise CliError(str(error)) from error
    raise typer.Exit(status)


def _become(module: str) -> None:
    """Turn into the module's process: the controller never imports monitor or workers."""
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-P", "-m", module])  # noqa: S606


@db.command()
def upgrade(config: ConfigOption = None) -> None:
    """Bring the database to this version's schema; makes it where there is none."""
    from registry import upgrade as upgrade_database  # noqa: PLC0415

    settings = load_settings()
    if settings.database_url is None:
        settings.make_state_dir()
    revision = upgrade_database(settings.resolved_database_url())
    echo(f"the database is at revision {revision}")


@db.command()
def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="To be made; not there yet.")],
) -> None:
    """Write the whole database into a file, while fuga runs."""
    from registry.operating.backup import BackupError  # noqa: PLC0415
    from registry.operating.backup import backup as make_backup  # noqa: PLC0415

    try:
        make_backup(load_settings().resolved_database_url(), file)
    except BackupError as error:
        raise CliError(str(error)) from None
    echo(f"{file}: {file.stat().st_size} bytes, with all that secrets are checked against")


@db.command()
def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Of `fuga db backup`.")],
) -> None:
    """Put a backup into an empty database. No process of fuga may run meanwhile."""
    from registry.operating.backup import BackupError  # noqa: PLC0415
    from registry.operating.backup import restore as put_back  # noqa: PLC0415

    try:
        put_back(load_settings().resolved_database_url(), file)
    except BackupError as error:
        raise CliError(str(error)) from None
    echo(
        "restored. Now: `fuga db upgrade`; start the monitor, then the rest; `fuga doctor`;"
        " `fuga token list`, since tokens revoked after the backup are good again"
    )


@db.command("token")
def operators_token(
    name: Annotated[str, typer.Argument(metavar="NAME", help="To tell it from others.")],
    expires: Annotated[
        str | None,
        typer.Option(
            "--expires",
            metavar="TIME",
            help="As 90d or 12h: it ends then; never; by default FUGA_OPERATOR_TOKEN_DAYS.",
        ),
    ] = None,
) -> None:
    """Make an operator's token, as who may write to the database: the first has no API to ask."""
    from controller.cli.vms.changes import parse_end  # noqa: PLC0415
    from registry import Registry  # noqa: PLC0415

    settings = load_settings()
    ttl_s = settings.operator_token_ttl_s
    if expires is not None:
        ends = parse_end(expires)
        ttl_s = None if ends == "never" else ends
    registry = Registry.connect(settings.resolved_database_url())
    try:
        _, secret = registry.tokens.create("operator", None, name, actor="cli", ttl_s=ttl_s)
    finally:
        registry.close()
    echo(secret)


@db.command()
def purge(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell what would go.")] = False,
) -> None:
    """Delete history that is older than it has to be, at once (the control centre does so too)."""
    from controller.centre.purge import purge_all  # noqa: PLC0415
    from registry import Registry  # noqa: PLC0415

    settings = load_settings()
    registry = Registry.connect(settings.resolved_database_url())
    try:
        periods = settings.periods
        counts = registry.retention.due(periods) if dry_run else purge_all(registry, periods)
    finally:
        registry.close()
    for number, what in (
        (counts.inputs, f"rounds' inputs and outcomes older than {periods.inputs_days} days"),
        (counts.assignments, f"assignments of VMs gone for {periods.rounds_days} days"),
        (counts.rounds, f"rounds older than {periods.rounds_days} days"),
        (counts.events, f"events from before the last {periods.events_months} months"),
        (counts.audit, f"rows of the audit from before the last {periods.audit_months} months"),
    ):
        echo(f"{'would delete' if dry_run else 'deleted'} {number:>8} {what}")


class Driver(StrEnum):
    """Which hosts the lab is made of."""

    AUTO = "auto"
    QEMU = "qemu"
    TEST = "test"


def up(
    hosts: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Your own hosts (TOML) instead of a lab."),
    ] = None,
    driver: Annotated[
        Driver, typer.Option(help="The lab's hosts: real QEMU, or libvirt's test driver.")
    ] = Driver.AUTO,
    port: Annotated[
        int | None,
        typer.Option(help="Of the API; 0 takes a free one. Else FUGA_LISTEN.", min=0, max=65535),
    ] = None,
    detach: Annotated[
        bool, typer.Option("--detach", help="Return once all runs; `fuga down` ends it.")
    ] = False,
    ready_fd: Annotated[int | None, typer.Option("--ready-fd", hidden=True)] = None,
) -> None:
    """Start everything on this machine: API, control centre, monitor, worker, hosts."""
    if detach:
        from controller.embedded.detached import run_detached, up_arguments  # noqa: PLC0415

        raise typer.Exit(run_detached(arguments=up_arguments(hosts, driver.value, port)))
    from controller.embedded.up import run  # noqa: PLC0415

    raise typer.Exit(run(hosts_file=hosts, driver=driver.value, port=port, ready_fd=ready_fd))


def down(
    purge: Annotated[
        bool, typer.Option("--purge", help="Remove the state folder's content, too.")
    ] = False,
) -> None:
    """End what `fuga up` started: processes, and the lab's hosts and guests."""
    from controller.embedded.down import run  # noqa: PLC0415

    run(purge=purge)
