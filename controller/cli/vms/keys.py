"""`fuga key`, and the files that `fuga request` reads: public keys and user data."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Annotated

import typer

from controller.session.name_lookup import is_part_of_id
from controller.session.session import Session, list_command, pass_session
from controller.terminal.columns import Column, field
from controller.terminal.errors import BadInputError
from controller.terminal.output import echo, short_id
from controller.terminal.times import time_since
from plain_text import plain, suggest_names

app = typer.Typer(name="key", no_args_is_help=True, help="SSH keys that open a tenant's new VMs.")

MAX_USER_DATA_BYTES = 65536
_MAX_KEY_FILE_BYTES = 262_144


def read_public_keys(path: Path) -> list[str]:
    """Read a file of public keys in the format of ``authorized_keys``."""
    text = _read_limited_file(path, _MAX_KEY_FILE_BYTES).decode("utf-8", errors="replace")
    if "PRIVATE KEY" in text:
        raise BadInputError(f"{path} holds a private key; give the public key, {path}.pub")
    lines = [line.strip() for line in text.splitlines()]
    keys = [line for line in lines if line and not line.startswith("#")]
    if not keys:
        raise BadInputError(f"{path} holds no public key")
    return keys


def read_user_data(path: Path) -> str:
    """Read a user-data file; warn if cloud-init will ignore it."""
    from controller.cloud_init import ignored_reason  # noqa: PLC0415 - YAML, seldom needed

    content = _read_limited_file(path, MAX_USER_DATA_BYTES)
    why = ignored_reason(content)
    if why is not None:
        echo(f"warning: cloud-init will ignore {plain(str(path))}, which {why}", err=True)
    return base64.b64encode(content).decode()


def _read_limited_file(path: Path, max_bytes: int) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(max_bytes + 1)
    except OSError as error:
        raise BadInputError(f"cannot read {path}: {error.strerror}") from error
    if len(content) > max_bytes:
        raise BadInputError(f"{path} is larger than {max_bytes} bytes")
    return content


@app.command("add")
@pass_session
def add_key(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the key")],
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Public key file, such as ~/.ssh/id_ed25519.pub")
    ],
    tenant: Annotated[str | None, typer.Option(help="Owner (required for operators)")] = None,
) -> None:
    """Add a public key to every VM that is created for the tenant from now on."""
    keys = read_public_keys(file)
    if len(keys) > 1:
        raise BadInputError(f"{file} holds {len(keys)} keys: add them one by one")
    body = {"name": name, "public_key": keys[0]}
    if tenant is not None:
        body["tenant"] = tenant
    made = session.api.post("ssh-keys", body)
    session.answer(made, f"key {name} ({made['fingerprint']}) of tenant {made['tenant']} added")


@app.command("list")
@list_command
def list_keys(
    session: Session,
    tenant: Annotated[str | None, typer.Option(help="Show only keys of this tenant")] = None,
) -> None:
    """List public keys."""
    columns = (
        Column("id", lambda row: short_id(row["id"])),
        field("name"),
        field("tenant"),
        field("fingerprint"),
        Column("age", lambda row: time_since(row["created_at"]), right=True),
    )
    session.show(
        session.api.items("ssh-keys", tenant=tenant),
        columns,
        empty="no keys. Add one with `fuga key add NAME FILE`.",
    )


@app.command("remove")
@pass_session
def remove_key(
    session: Session,
    key: Annotated[str, typer.Argument(metavar="KEY", help="Key name, id or end of the id")],
    tenant: Annotated[str | None, typer.Option(help="Owner of the key")] = None,
) -> None:
    """Remove a key from future VMs. Existing VMs keep it."""
    listed = list(session.api.items("ssh-keys", tenant=tenant))
    found = [each for each in listed if each["name"] == key or is_part_of_id(key, each["id"])]
    if len(found) != 1:
        what = "several keys are" if found else "no key is"
        suggestion = None if found else suggest_names(key, [each["name"] for each in listed])
        raise BadInputError(f"{what} called {key!r}; {suggestion or '`fuga key list` shows them'}")
    gone = session.api.delete(f"ssh-keys/{found[0]['id']}")
    session.answer(gone, f"key {gone['name']} of tenant {gone['tenant']} is removed")
