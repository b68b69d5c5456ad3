"""`fuga api`, `control`, `monitor`, `worker`, `simulation-worker`, `up`, `down`."""

from __future__ import annotations

import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from controller.cli.extras import require_libvirt, require_simulation_packages
from controller.session.config_option import ConfigOption
from controller.session.settings import load_settings
from controller.terminal.errors import BadInputError, CliError


def api(config: ConfigOption = None) -> None:
    """Serve the REST API (one process)."""
    from controller import rest  # noqa: PLC0415

    load_settings()  # reports bad settings before a module that reads them is imported
    raise typer.Exit(rest.main())


def control(config: ConfigOption = None) -> None:
    """Run the control centre, which decides every slot (one process)."""
    from controller.control_center import slot_loop  # noqa: PLC0415

    load_settings()
    slot_loop.main()


def monitor(config: ConfigOption = None) -> None:
    """Poll the hosts (one process)."""
    require_libvirt("fuga monitor")
    _exec_module("monitor")


def worker(config: ConfigOption = None) -> None:
    """Create and delete VMs (one process)."""
    require_libvirt("fuga worker")
    _exec_module("workers")


def simulation_worker(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER",
            help="Folder shared by the fleet; its writers gain this process's rights",
        ),
    ],
    jobs: Annotated[
        int, typer.Option("--jobs", "-j", help="Runs at a time; 0: one per core", min=0)
    ] = 0,
    config: ConfigOption = None,
) -> None:
    """Execute the runs of `fuga simulate --celery` (one process, plus one per run).

    Needs FUGA_BROKER_URL, but neither database nor hosts.

    On SIGTERM or Ctrl-C, runs save their state and other workers continue them.
    """
    require_simulation_packages("fuga simulation-worker")
    from controller.simulations.queue import NoFleetError  # noqa: PLC0415
    from controller.simulations.worker import run_worker  # noqa: PLC0415
    from service import ListenerError  # noqa: PLC0415

    if not folder.is_dir():
        raise BadInputError(f"{folder}: folder not found on this machine")
    try:
        status = run_worker(load_settings(), folder, jobs=jobs or os.cpu_count() or 1)
    except (NoFleetError, ListenerError) as error:
        raise CliError(str(error)) from error
    raise typer.Exit(status)


def _exec_module(module: str) -> None:
    """Replace this process by one that runs the module, with exec."""
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-P", "-m", module])  # noqa: S606


class LabHostKind(StrEnum):
    """The kind of lab hosts that `fuga up` starts."""

    AUTO = "auto"
    QEMU = "qemu"
    TEST = "test"


def up(
    hosts: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Use the hosts in this TOML file instead of a lab"),
    ] = None,
    driver: Annotated[
        LabHostKind, typer.Option(help="Lab hosts: real QEMU or libvirt's test driver")
    ] = LabHostKind.AUTO,
    port: Annotated[
        int | None,
        typer.Option(help="API port; 0: any free port (default: FUGA_LISTEN)", min=0, max=65535),
    ] = None,
    detach: Annotated[
        bool, typer.Option("--detach", help="Run in the background; stop with `fuga down`")
    ] = False,
    ready_fd: Annotated[int | None, typer.Option("--ready-fd", hidden=True)] = None,
) -> None:
    """Start API, control centre, monitor, worker and hosts on this machine."""
    require_libvirt("fuga up")
    if detach:
        from controller.embedded.detached import run_detached, up_arguments  # noqa: PLC0415

        raise typer.Exit(run_detached(arguments=up_arguments(hosts, driver.value, port)))
    from controller.embedded.up import run_up  # noqa: PLC0415

    raise typer.Exit(run_up(hosts_file=hosts, driver=driver.value, port=port, ready_fd=ready_fd))


def down(
    purge: Annotated[
        bool, typer.Option("--purge", help="Also delete the contents of the state folder")
    ] = False,
) -> None:
    """Stop what `fuga up` started: processes, lab hosts and guests."""
    from controller.embedded.down import run_down  # noqa: PLC0415

    run_down(purge=purge)
