"""The readiness of a process: a list of checks, each with a sentence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from registry import Registry, SchemaOutdatedError


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one readiness check."""

    name: str
    well: bool
    message: str


#: Runs the readiness checks of a process.
Readiness = Callable[[], Sequence[Check]]


def database_check(registry: Registry) -> Check:
    """Check whether the database answers and has the tables that this version needs."""
    try:
        registry.check_schema()
    except SchemaOutdatedError as error:
        return Check("database", False, str(error))
    except Exception:  # any driver's error; its words may name the database's host and user
        return Check("database", False, "it does not answer")
    return Check("database", True, "it answers, and its schema matches")
