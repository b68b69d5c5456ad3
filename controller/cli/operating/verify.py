"""`fuga verify`: a tenant checks by itself that its rows of rounds are as they were disclosed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from controller.session.proofs import (
    BEGINNING,
    ProofError,
    VerifiedChain,
    build_proof_document,
    parse_document,
    verify_chain,
)
from controller.session.session import Session, pass_session
from controller.terminal.errors import BadInputError, CliError
from plain_text import plain

_SHOWN = 10  #: numbers of rounds in a sentence


@pass_session
def verify(
    session: Session,
    *,
    tenant: Annotated[str, typer.Option(help="Tenant whose rows to check")],
    last: Annotated[
        int, typer.Option("--last", "-n", help="Number of newest rounds", min=1)
    ] = 1000,
    everything: Annotated[bool, typer.Option("--all", "-a", help="Check all rounds")] = False,
    save: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also save them in a new file")
    ] = None,
    read: Annotated[
        Path | None, typer.Option("--from", metavar="FILE", help="Check a saved file: no network")
    ] = None,
    known: Annotated[
        str | None,
        typer.Option(metavar="LINK", help="A link noted before: it has to be on the chain"),
    ] = None,
) -> None:
    """Check that a tenant's rows of rounds are as they were committed."""
    if save is not None and read is not None:
        raise BadInputError("--save and --from exclude each other: a saved file is there already")
    try:
        if read is not None:
            document = parse_document(_read_file(read))
        else:
            rounds = session.api.items(
                "rounds/proofs", max_items=None if everything else last, tenant=tenant
            )
            document = build_proof_document(tenant, list(rounds))
        if save is not None:
            _save_document(save, document)
        found = verify_chain(document, tenant, known)
    except ProofError as error:
        raise CliError(f"NOT VERIFIED: {plain(str(error))}") from error
    session.answer(_result_document(found), *_result_lines(found))


def _result_document(found: VerifiedChain) -> dict[str, Any]:
    return {name: getattr(found, name) for name in VerifiedChain.__dataclass_fields__}


def _result_lines(found: VerifiedChain) -> list[str]:
    lines = [
        f"{found.rounds} rounds, {found.first} to {found.last}, are one chain",
        f"{found.rows} of them have a row of {found.tenant}, each as it was committed",
    ]
    if found.without_row:
        lines.append(f"{len(found.without_row)} have none: {_numbers_text(found.without_row)}")
    if found.purged:
        lines.append(
            f"{len(found.purged)} are purged but for their link: {_numbers_text(found.purged)}"
        )
    if found.known_at is not None:
        where = f"the link of round {found.known_at}" if found.known_at else "the anchor"
        lines.append(f"the known link is {where}: the chain goes on from it")
    begins = "the first link of all" if found.anchor == BEGINNING else found.anchor
    lines.append(f"anchor  {begins}")
    lines.append(f"head    {found.head}  (note it, and give it to --known next time)")
    return lines


def _numbers_text(rounds: tuple[int, ...]) -> str:
    some = ", ".join(map(str, rounds[:_SHOWN]))
    return f"{some}, …" if len(rounds) > _SHOWN else some


def _read_file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadInputError(f"cannot read {path}: {error.strerror}") from error


def _save_document(path: Path, document: dict[str, Any]) -> None:
    """Write a new file; never overwrite one, because it may be evidence."""
    text = json.dumps(document, separators=(",", ":"), allow_nan=False)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())
    except FileExistsError:
        raise BadInputError(f"{path} exists; name a new file") from None
    except OSError as error:
        raise BadInputError(f"cannot write {path}: {error.strerror}") from error
