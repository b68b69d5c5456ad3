"""`fuga verify`: a tenant checks by itself that its rows of rounds are as they were disclosed."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from controller.client.errors import ApiProblemError
from controller.session.json_shapes import ProofError
from controller.session.proofs import (
    BEGINNING,
    VerifiedChain,
    build_proof_document,
    parse_document,
    verify_chain,
)
from controller.session.session import Session, pass_session
from controller.session.signed_heads import SignedHeads, read_public_key, verify_heads
from controller.session.witness import WitnessedHeads, witness_head
from controller.terminal.errors import BadInputError, CliError
from plain_text import plain

_SHOWN = 10  #: numbers of rounds in a sentence
_UNPROVEN: Final = (
    "not proven: that all requests and hosts were counted when rounds were decided, what others"
    " hold, the fair share, and that others are shown the same chain",
)


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
    key: Annotated[
        str | None,
        typer.Option(metavar="FILE|HEX", help="The site's public key: it must have signed them"),
    ] = None,
    witness: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="File of heads seen: compare, and append the newest"),
    ] = None,
) -> None:
    """Check that a tenant's rows of rounds are as they were committed, and who signed them."""
    if save is not None and read is not None:
        raise BadInputError("--save and --from exclude each other: a saved file is there already")
    try:
        if read is not None:
            document = parse_document(_read_file(read))
        else:
            rounds = session.api.items(
                "rounds/proofs", max_items=None if everything else last, tenant=tenant
            )
            document = build_proof_document(tenant, list(rounds), _fetch_keys(session))
        if save is not None:
            _save_document(save, document)
        found = verify_chain(document, tenant, known)
        heads = verify_heads(document, None if key is None else _read_key(key))
        seen = None
        if witness is not None:
            seen = _witness(witness, document, newest=read is None)
    except ProofError as error:
        raise CliError(f"NOT VERIFIED: {plain(str(error))}") from error
    session.answer(
        {**asdict(found), **asdict(heads), "witness": None if seen is None else asdict(seen)},
        *_result_lines(found),
        *_signature_lines(heads, from_file=read is not None),
        *_witness_lines(seen),
        *_head_lines(found),
        *_UNPROVEN,
    )


def _fetch_keys(session: Session) -> list[dict[str, Any]] | None:
    """Return the public keys that the site publishes; None from an older release."""
    try:
        keys: list[dict[str, Any]] = session.api.get("site-keys")["keys"]
    except ApiProblemError as error:
        if error.http_status != HTTPStatus.NOT_FOUND:
            raise
        return None
    return keys


def _read_key(given: str) -> str:
    try:
        return read_public_key(given)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise BadInputError(f"--key {given}: {why}") from error


def _witness(path: Path, document: dict[str, Any], *, newest: bool) -> WitnessedHeads:
    try:
        return witness_head(path, document, now=datetime.now(UTC), newest=newest)
    except OSError as error:
        raise BadInputError(f"cannot use {path}: {error.strerror}") from error


def _result_lines(found: VerifiedChain) -> list[str]:
    lines = [
        f"{found.rounds} rounds, {found.first} to {found.last}, are one chain",
        f"{found.rows} of them have a row of {found.tenant}, each as it was committed",
    ]
    if found.recomputed:
        lines.append(
            f"{found.recomputed} shares follow from what {found.tenant} held and from the pool"
        )
    if found.recomputed < found.rows:
        lines.append(
            f"{found.rows - found.recomputed} are of an older kind, without what shares follow from"
        )
    if found.without_row:
        lines.append(f"{len(found.without_row)} have none: {_numbers_text(found.without_row)}")
    if found.purged:
        lines.append(
            f"{len(found.purged)} are purged but for their link: {_numbers_text(found.purged)}"
        )
    if found.known_at is not None:
        where = f"the link of round {found.known_at}" if found.known_at else "the anchor"
        lines.append(f"the known link is {where}: the chain goes on from it")
    return lines


def _signature_lines(heads: SignedHeads, *, from_file: bool) -> list[str]:
    if heads.signed_by is None:
        return ["not signed: nothing here shows who wrote them"]
    signer = f"key {heads.signed_by}"
    if heads.trusted:
        lines = [f"signed up to round {heads.signed_to} by {signer}, which --key names or leads to"]
    else:
        who = "the file" if from_file else "the site"
        lines = [
            f"signed up to round {heads.signed_to} by {signer}, which {who} itself names: get the"
            " site's key on another way and give it to --key"
        ]
    if heads.unsigned:
        lines.append(f"the {heads.unsigned} rounds after it are not signed")
    return lines


def _witness_lines(seen: WitnessedHeads | None) -> list[str]:
    if seen is None:
        return []
    rest = f", {seen.not_compared} are of other rounds" if seen.not_compared else ""
    new = "the newest head is added" if seen.added else "the newest head is one of them"
    return [f"{seen.agree} heads seen before are on this chain{rest}; {new}"]


def _head_lines(found: VerifiedChain) -> list[str]:
    lines = []
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
