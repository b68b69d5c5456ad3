"""`fuga db key`: the key that signs rounds, by which tenants know who wrote them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from controller.session.config_option import ConfigOption
from controller.session.default_command import ImpliedCommand
from controller.session.session import Session, pass_session
from controller.session.settings import load_settings
from controller.terminal.columns import Column, field
from controller.terminal.errors import CliError
from controller.terminal.output import echo, print_json, print_table
from controller.terminal.times import clock

if TYPE_CHECKING:
    from typer._click import Context

    from registry import Registry
    from registry.rounds import PrivateKey, SiteKey

_ACTOR: Final = "cli"


class _Key(ImpliedCommand):
    implied = "show"

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """Show the keys if no word follows."""
        return super().parse_args(ctx, args or [self.implied])


key = typer.Typer(name="key", cls=_Key, help="The key that signs rounds.")


@contextmanager
def _opened() -> Iterator[tuple[Registry, Path]]:
    """Yield the register center and the private key's path; print errors in words."""
    from registry import Registry, RegistryError  # noqa: PLC0415 - slow; `--help` needs none

    settings = load_settings()
    try:
        registry = Registry.connect(settings.resolved_database_url())
        try:
            yield registry, settings.resolved_signing_key()
        finally:
            registry.close()
    except RegistryError as error:
        raise CliError(str(error)) from error


@key.command()
@pass_session
def show(session: Session, config: ConfigOption = None) -> None:
    """Show the site's public keys, with the rounds that each signs."""
    with _opened() as (registry, file):
        keys, problem = registry.site_keys.list(), _file_problem(registry, file)
    if session.json:
        print_json({"keys": [_key_document(each) for each in keys], "problem": problem})
        return
    columns = (
        field("public_key"),
        Column("rounds", lambda row: _range_text(row["first_round"], row["last_round"])),
        Column("named by the key before", lambda row: "yes" if row["endorsement"] else "no"),
        Column("since", lambda row: clock(row["created_at"])),
    )
    rows = [_key_document(each) for each in keys]
    print_table(columns, rows, empty="rounds are not signed: `fuga db key create` makes a key")
    if problem is not None:
        echo(problem, err=True)


@key.command()
def create(config: ConfigOption = None) -> None:
    """Create the key, or take the one that is in the key's file already."""
    from registry.rounds import PrivateKey, write_private_key  # noqa: PLC0415 - slow

    with _opened() as (registry, file):
        current = registry.site_keys.current()
        if current is not None:
            if _finish_rotation(file, current):
                echo(f"{file}: the interrupted rotation to {current.public_key} is finished")
                return
            raise CliError(
                f"the site has key {current.public_key} already: `fuga db key rotate` replaces it"
            )
        if file.exists():
            private = PrivateKey.read(file)
        else:
            private = PrivateKey.generate()
            file.parent.mkdir(parents=True, exist_ok=True)
            write_private_key(file, private)
        made = registry.site_keys.add(private.public_key, instead_of=None, actor=_ACTOR)
    _print_made(made, file)


@key.command()
def rotate(
    config: ConfigOption = None,
    *,
    lost: Annotated[
        bool,
        typer.Option("--lost", help="The old private key is lost or stolen: it names no new key"),
    ] = False,
) -> None:
    """Replace the key from the next round on; the old one names the new one and is deleted."""
    from registry.rounds import PrivateKey, replace_private_key, write_private_key  # noqa: PLC0415 - slow

    with _opened() as (registry, file):
        current = registry.site_keys.current()
        if current is None:
            raise CliError("the site has no key: `fuga db key create` makes one")
        if _finish_rotation(file, current):
            echo(f"{file}: the interrupted rotation to {current.public_key} is finished")
            return
        old = None if lost else _present_private_key(file, current)
        private, following = PrivateKey.generate(), _following(file)
        following.unlink(missing_ok=True)  # of a rotation that wrote nothing to the database
        file.parent.mkdir(parents=True, exist_ok=True)
        write_private_key(following, private)
        made = registry.site_keys.add(
            private.public_key,
            instead_of=current.public_key,
            endorse=None if old is None else lambda first: old.endorse(private.public_key, first),
            actor=_ACTOR,
        )
        replace_private_key(file, following)
    _print_made(made, file)


def _print_made(made: SiteKey, file: Path) -> None:
    echo(f"public key {made.public_key}, for rounds from {made.first_round} on")
    echo(
        f"{file} is its private half: copy it to each control centre, and keep a copy apart from"
        " the backups of the database"
    )
    echo("Publish the public key where this site cannot change it, for `fuga verify --key`")


def _following(file: Path) -> Path:
    return file.with_name(file.name + ".new")


def _finish_rotation(file: Path, current: SiteKey) -> bool:
    """Put the new private key in its place if a rotation ended between database and file."""
    from registry.rounds import PrivateKey, replace_private_key  # noqa: PLC0415 - slow

    following = _following(file)
    if not following.exists() or PrivateKey.read(following).public_key != current.public_key:
        return False
    replace_private_key(file, following)
    return True


def _present_private_key(file: Path, current: SiteKey) -> PrivateKey:
    from registry.rounds import PrivateKey, SiteKeyError  # noqa: PLC0415 - slow

    hint = "run this where the private key is; if it is lost or stolen, `fuga db key rotate --lost`"
    try:
        private = PrivateKey.read(file)
    except SiteKeyError as error:
        raise CliError(f"{error}; {hint}") from error
    if private.public_key != current.public_key:
        raise CliError(
            f"{file} has key {private.public_key}, the site's is {current.public_key}: {hint}"
        )
    return private


def _file_problem(registry: Registry, file: Path) -> str | None:
    """Return why this machine cannot sign, or None; without a key there is no problem."""
    from registry.rounds import PrivateKey, SiteKeyError  # noqa: PLC0415 - slow

    current = registry.site_keys.current()
    if current is None:
        return None
    try:
        found = PrivateKey.read(file).public_key
    except SiteKeyError as error:
        return f"a control centre on this machine does not sign: {error}"
    if found != current.public_key:
        return f"a control centre on this machine does not sign: {file} has key {found}"
    return None


def _key_document(each: SiteKey) -> dict[str, str | int | None]:
    return {
        "public_key": each.public_key,
        "first_round": each.first_round,
        "last_round": each.last_round,
        "endorsement": each.endorsement,
        "created_at": each.created_at.isoformat(),
    }


def _range_text(first: int, last: int | None) -> str:
    if last is None:
        return f"{first} and later"
    return f"{first} to {last}" if last >= first else "none"
