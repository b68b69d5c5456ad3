"""A file of heads that somebody saw, with which a chain that is shown later must agree.

Each line is one head in JSON. Lines are only appended, so files of several witnesses can be joined.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from controller.session.json_shapes import ProofError, expect_int, expect_object, parse_digest

_OF_HEAD: Final = ("round", "link", "key", "signature", "seen_at")


@dataclass(frozen=True, slots=True, kw_only=True)
class WitnessedHeads:
    """The result of comparing a chain with heads that were seen."""

    agree: int  #: seen heads that are on the chain
    not_compared: int  #: seen heads outside the rounds that are shown
    added: bool  #: whether the newest head was new to the file


def witness_head(
    path: Path, document: Mapping[str, Any], *, now: datetime, newest: bool
) -> WitnessedHeads:
    """Compare a verified document with a file of heads, and append its newest one.

    Parameters
    ----------
    newest : bool
        Whether the document has the newest rounds of the site, so that a head of a later round
        contradicts it.

    Raises
    ------
    ProofError
        If a head that was seen is not on the chain, or two lines of the file contradict each other.
    OSError
        If the file cannot be read or written.
    """
    with path.open("a+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        seen = _parse_heads(file.read(), path)
        agree, not_compared = _compare(seen, document, path, newest=newest)
        head = document["rounds"][0]
        added = head["round"] not in seen
        if added:
            signed = head.get("signed") or {"key": None, "signature": None}
            line = {"round": head["round"], "link": head["link"], **signed}
            line["seen_at"] = now.isoformat(timespec="seconds")
            file.write(json.dumps(line) + "\n")
            file.flush()
            os.fsync(file.fileno())
    return WitnessedHeads(agree=agree, not_compared=not_compared, added=added)


def _compare(
    seen: Mapping[int, str], document: Mapping[str, Any], path: Path, *, newest: bool
) -> tuple[int, int]:
    """Return the number of seen heads that are on the chain, and of those outside its rounds."""
    rounds = document["rounds"]
    links = {proof["round"]: proof["link"] for proof in rounds}
    first, last = rounds[-1]["round"], rounds[0]["round"]
    before = [number for number in seen if number < first]
    # The link that the oldest round follows is that of the newest one before it.
    agree = int(bool(before) and seen[max(before)] == rounds[-1]["previous"])
    not_compared = len(before) - agree
    for number, link in seen.items():
        if number < first:
            continue
        if number > last:
            if newest:
                raise ProofError(
                    f"{path} has round {number}, and the newest that is shown is {last}: later"
                    " rounds are gone"
                )
            not_compared += 1
        elif links.get(number) == link:
            agree += 1
        else:
            raise ProofError(
                f"{path} has another link of round {number}: the chain that was seen then is not"
                " the one that is shown now"
            )
    return agree, not_compared


def _parse_heads(text: str, path: Path) -> dict[int, str]:
    """Return the link of each round."""
    if text and not text.endswith("\n"):
        raise ProofError(f"{path}: its last line is not whole; remove it")
    seen: dict[int, str] = {}
    for at, line in enumerate(text.splitlines(), start=1):
        where = f"{path}, line {at}"
        try:
            head = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ProofError(f"{where}: no JSON ({error})") from error
        expect_object(head, _OF_HEAD, where)
        number = expect_int(head["round"], f"{where}: round")
        parse_digest(head["link"], f"{where}: link")
        if seen.setdefault(number, head["link"]) != head["link"]:
            raise ProofError(
                f"{where}: a second link of round {number}: two chains were shown, which is proof"
                " against the site if both are signed"
            )
    return seen
