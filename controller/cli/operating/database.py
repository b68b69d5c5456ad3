"""`fuga db`: upgrade, back up, restore and purge the database; the key that signs rounds."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from controller.cli.operating.site_key import key
from controller.session.config_option import ConfigOption
from controller.session.settings import load_settings
from controller.terminal.errors import CliError
from controller.terminal.output import echo

db = typer.Typer(name="db", no_args_is_help=True, help="The register center's database.")
db.add_typer(key)


@db.command()
def upgrade(config: ConfigOption = None) -> None:
    """Upgrade the database to this version's schema, or create it."""
    from registry import upgrade as upgrade_database  # noqa: PLC0415

    settings = load_settings()
    if settings.database_url is None:
        settings.make_state_dir()
    revision = upgrade_database(settings.resolved_database_url())
    echo(f"the database is at revision {revision}")


@contextmanager
def _exit_on_signals() -> Iterator[None]:
    """Exit by exception on SIGTERM and SIGHUP, so that incomplete files are removed."""

    def exit_on_signal(number: int, _: object) -> None:
        sys.exit(128 + number)

    before = {each: signal.signal(each, exit_on_signal) for each in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


@db.command()
def backup(file: Annotated[Path, typer.Argument(metavar="FILE", help="New backup file")]) -> None:
    """Back up the whole database into a file while fuga runs."""
    from registry import Registry, RegistryError  # noqa: PLC0415
    from registry.admin import backup as backups  # noqa: PLC0415

    settings = load_settings()
    url, key_file = settings.resolved_database_url(), settings.resolved_signing_key()
    try:
        with _exit_on_signals():
            backups.backup(url, file)
    except backups.BackupError as error:
        raise CliError(str(error)) from None
    try:
        registry = Registry.connect(url)
        backups.record_backup(registry.events, file)
        registry.close()
    except RegistryError as error:
        echo(f"the database does not record that it was backed up: {error}", err=True)
    if left := backups.unfinished_backups(file.parent):
        names = ", ".join(str(each) for each in left)
        echo(
            f"backups that were killed have left {names}: delete what no other machine writes",
            err=True,
        )
    echo(f"{file}: {file.stat().st_size} bytes; keep it safe, it holds the hashes of all tokens")
    if key_file.exists():
        echo(f"it does not hold {key_file}, the private key that signs rounds: keep a copy apart")


@db.command()
def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Backup file of `fuga db backup`")],
) -> None:
    """Restore a backup into an empty database. Stop all fuga processes first."""
    from registry.admin.backup import BackupError  # noqa: PLC0415
    from registry.admin.backup import restore as put_back  # noqa: PLC0415

    try:
        with _exit_on_signals():
            put_back(load_settings().resolved_database_url(), file)
    except BackupError as error:
        raise CliError(str(error)) from None
    echo(
        "restored. Next: `fuga db upgrade`; start the monitor, then the rest; `fuga doctor`;"
        " `fuga token list`: tokens revoked after the backup are valid again; `fuga db key`:"
        " whether the private key that signs rounds is here. Rounds after the backup are gone, and"
        " tenants who noted their links see that"
    )


@db.command("token")
def operators_token(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the token")],
    expires: Annotated[
        str | None,
        typer.Option(
            "--expires",
            metavar="TIME",
            help="Lifetime: 90d, 12h or never (default: FUGA_OPERATOR_TOKEN_DAYS)",
        ),
    ] = None,
) -> None:
    """Create an operator's token directly in the database, such as the first one."""
    from controller.terminal.times import parse_end  # noqa: PLC0415
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
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be deleted")] = False,
) -> None:
    """Delete expired history now. The control centre does so regularly."""
    from controller.control_center.purge import purge_all  # noqa: PLC0415
    from registry import Registry  # noqa: PLC0415

    settings = load_settings()
    registry = Registry.connect(settings.resolved_database_url())
    try:
        periods = settings.periods
        counts = registry.retention.count_due(periods) if dry_run else purge_all(registry, periods)
    finally:
        registry.close()
    for number, what in (
        (counts.inputs, f"inputs and outcomes of rounds older than {periods.inputs_days} days"),
        (counts.assignments, f"assignments of VMs deleted {periods.rounds_days} days ago"),
        (counts.rounds, f"rounds older than {periods.rounds_days} days"),
        (counts.links, f"links of rounds older than {periods.rounds_days} days"),
        (counts.plans, f"plans of moves older than {periods.rounds_days} days"),
        (counts.rolls, f"rolls over hosts older than {periods.rounds_days} days"),
        (counts.reservations, f"reservations older than {periods.rounds_days} days"),
        (counts.moves, f"moves older than {periods.rounds_days} days"),
        (counts.events, f"events older than {periods.events_months} months"),
        (counts.audit, f"audit rows older than {periods.audit_months} months"),
    ):
        echo(f"{'would delete' if dry_run else 'deleted'} {number:>8} {what}")
