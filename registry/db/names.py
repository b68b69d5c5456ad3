"""Checks of names, labels and amounts before they are stored."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Final

from registry.errors import InvalidError, NotFoundError, UnknownNameError

_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?")
_LABEL: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._:/=-]{0,126}[A-Za-z0-9])?")
#: Words that options, filters and answers use where a name may also be given:
#: `--offer-to all`, a selector `all`, `vcpus=none`, `--from now`, `--expires never`.
WORDS: Final = frozenset(
    {"all", "any", "anybody", "everybody", "everyone", "nobody", "none", "null", "now", "never"}
)
#: Further words for tenants: the audit and events show callers without a tenant as `operator`.
WORDS_OF_CALLERS: Final = frozenset({"operator", "operators"})
#: multiplied by a ratio it still fits into 64 bits
MAX_AMOUNT: Final = 1_000_000_000_000
MAX_RATIO_THOUSANDTHS: Final = 1_000_000
MAX_LABELS: Final = 64


#: Label keys that the engine reads, with the reason why a host has only one value of each.
ONE_VALUED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "machine": "a host is one machine",
        "move_address": "a host receives moves at one address",
        "on_failure": "a failure has one answer",
        "on_missing": "a missing VM has one answer",
        "shared_pool": "a host has one pool",
        "zone": "a host is in one zone",
    }
)


def check_name(field: str, name: str) -> str:
    """Return the name, or raise `InvalidError` if it has other characters than names may have."""
    if not _NAME.fullmatch(name):
        allowed = "1 to 63 of a-z, 0-9, '.', '_', '-', first and last a letter or digit"
        raise InvalidError(field, name, allowed)
    return name


def check_new_name(field: str, name: str, words: frozenset[str] = WORDS) -> str:
    """Return a new thing's name, or raise `InvalidError` if it is invalid or reserved.

    Existing things keep such a name; `fuga doctor` lists them.
    """
    if name in words:
        allowed = (
            "another name: commands and the API take this one as a word; those words are"
            f" {', '.join(sorted(words))}"
        )
        raise InvalidError(field, name, allowed)
    return check_name(field, name)


def is_name(name: str) -> bool:
    """Return whether a text is valid as the name of a tenant, host, VM or other object."""
    return _NAME.fullmatch(name) is not None


def lookup_name(kind: str, name: str) -> str:
    """Return a name to search for, or raise `NotFoundError` if it is no valid name.

    Text from a JSON body may contain characters that no database can encode, so invalid names
    reach no statement.
    """
    if not _NAME.fullmatch(name):
        raise NotFoundError(kind, name)
    return name


def check_labels(field: str, labels: Iterable[str]) -> tuple[str, ...]:
    """Return labels, sorted and without duplicates; raise `InvalidError` for an invalid one."""
    found = tuple(sorted(set(labels)))
    for label in found:
        if not _LABEL.fullmatch(label):
            raise InvalidError(field, label, "1 to 128 letters, digits and . _ : / = -")
    if len(found) > MAX_LABELS:
        raise InvalidError(field, len(found), f"at most {MAX_LABELS} labels")
    return found


def check_host_labels(field: str, labels: Iterable[str]) -> tuple[str, ...]:
    """Return a host's labels, sorted and without duplicates."""
    found = check_labels(field, labels)
    check_single_values(field, found)
    return found


def check_single_values(field: str, labels: Iterable[str]) -> None:
    """Raise `InvalidError` if a host's labels give two values to a key that may have one."""
    found = sorted({label for label in labels if label.partition("=")[0] in ONE_VALUED})
    for label, after in itertools.pairwise(found):
        key = label.partition("=")[0]
        if after.partition("=")[0] == key:
            why = ONE_VALUED[key]
            raise InvalidError(field, f"{label} and {after}", f"one label {key}=…: {why}")


def check_int(field: str, value: int, low: int, high: int) -> int:
    """Return a field's number, or raise `InvalidError` if it is out of bounds."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InvalidError(field, value, f"a whole number from {low} to {high}")
    return value


def check_amounts(
    field: str, amounts: Mapping[str, int], resources: Iterable[str], *, low: int = 0
) -> dict[str, int]:
    """Return amounts by resource; raise an `InvalidError` for an unknown or impossible one."""
    known = tuple(resources)
    for name, amount in amounts.items():
        if name not in known:
            raise UnknownNameError(f"{field}.{name}", "resource", name, known=known)
        check_int(f"{field}.{name}", amount, low, MAX_AMOUNT)
    return dict(amounts)


def check_weight(weight: float) -> float:
    """Return a tenant's weight, or raise `InvalidError`: shares are divided by it."""
    if not (math.isfinite(weight) and 1e-6 <= weight <= 1e6):
        raise InvalidError("weight", weight, "a number from 0.000001 to 1000000")
    return float(weight)


MAX_TTL_S: Final = 10 * 365 * 86_400


def expires_at(ttl_s: int | None, now: datetime) -> datetime | None:
    """Return the end time of a request with a lifetime in seconds; None means never."""
    if ttl_s is None:
        return None
    return now + timedelta(seconds=check_int("ttl_s", ttl_s, 1, MAX_TTL_S))
