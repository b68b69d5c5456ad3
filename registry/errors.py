"""What a caller of the register center can do something about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from plain_text import advice, listed, shortened

_SAID: Final = 120


def said_value(found: object) -> str:
    """Return what was found, as people say it: nothing for null, text in quotes, no more of it."""
    match found:
        case None:
            return "nothing"
        case bool():
            return "true" if found else "false"
        case str():
            return repr(shortened(found, _SAID))
        case _:
            return shortened(str(found), _SAID)


class RegistryError(Exception):
    """Base of all errors of this package."""


class NotFoundError(RegistryError):
    """Nothing has that key."""

    def __init__(self, kind: str, key: object) -> None:
        super().__init__(f"there is no {kind} {str(key)!r}")
        self.kind = kind
        self.key = str(key)


class DuplicateError(RegistryError):
    """Another one holds that value already."""

    def __init__(self, kind: str, field: str, value: object) -> None:
        super().__init__(f"a {kind} with {field} {str(value)!r} exists already")
        self.kind = kind
        self.field = field
        self.value = str(value)


class AnotherMachineError(RegistryError):
    """A machine answered at a host's address that is not the host."""

    def __init__(self, host: str, known: str | None, found: str | None) -> None:
        super().__init__(
            f"another machine answers as host {host}: {found} instead of {known}, without"
            " anything of ours; `fuga doctor --hosts` tells what to do"
        )
        self.host = host


class InvalidError(RegistryError):
    """A value is outside what is allowed."""

    def __init__(self, field: str, found: object, allowed: str) -> None:
        super().__init__(f"{field}: found {said_value(found)}, allowed is {allowed}")
        self.field = field
        self.found = found
        self.allowed = allowed


class UnknownNameError(InvalidError):
    """A field names something that is not there, at least not for who asks."""

    def __init__(
        self,
        field: str,
        kind: str,
        key: object,
        *,
        hint: str | None = None,
        known: Sequence[str] = (),
    ) -> None:
        allowed = f"one of {listed(known, 'and')}" if known else f"an existing {kind}"
        super().__init__(field, key, f"{allowed}, {hint}" if hint else allowed)
        told = f"{field}: there is no {kind} {said_value(key)}"
        also = hint or advice(str(key), known) or (allowed if known else None)
        self.args = (f"{told}; {also}" if also else told,)
        self.kind = kind
        self.key = str(key)
        self.known = tuple(known)


class ConflictError(RegistryError):
    """What exists stands in the way of what was asked."""


class IllegalTransitionError(RegistryError):
    """A state machine has no such row."""

    def __init__(self, state: object, event: object) -> None:
        super().__init__(f"{event} is not possible in state {state}")
        self.state = str(state)
        self.event = str(event)


class CapacityExceededError(RegistryError):
    """The ledger refused to commit more than a host offers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaExcess:
    """One limit that a request would exceed."""

    tenant: str  #: whose quota: the tenant's own, or that of a group above it
    resource: str
    limit: int
    used: int  #: asked for already
    asked: int  #: asked for now


class QuotaExceededError(RegistryError):
    """A request asks for more than a quota leaves."""

    def __init__(self, tenant: str, exceeded: Sequence[QuotaExcess]) -> None:
        told = "; ".join(
            f"the quota of {each.tenant} is {each.limit} {each.resource}, {each.used} are used"
            f" and {each.asked} asked for"
            for each in exceeded
        )
        super().__init__(f"{told}. Ask for less, delete VMs, or have an operator raise the quota")
        self.tenant = tenant
        self.exceeded = tuple(exceeded)


class StaleEpochError(RegistryError):
    """The control centre's lease is over, or somebody else's by now."""

    def __init__(self, holder: str, epoch: int, found: str) -> None:
        super().__init__(f"{holder} holds no lease of epoch {epoch}: {found}")
        self.holder = holder
        self.epoch = epoch


class LeaseLostError(RegistryError):
    """A lease could not be renewed: it ran out and somebody else may have it."""

    def __init__(self, name: str, holder: str, epoch: int) -> None:
        super().__init__(f"{holder} has lost the lease {name!r} of epoch {epoch}")
        self.name = name
        self.holder = holder
        self.epoch = epoch


class ClaimLostError(RegistryError):
    """The row is no longer this claim's; whoever worked on it undoes what it did."""

    def __init__(self, subject: object, found: str) -> None:
        super().__init__(f"the claim on {subject} is lost: {found}")
        self.subject = str(subject)
        self.found = found


class RoundPurgedError(RegistryError):
    """What a round was decided on is no longer kept."""

    def __init__(self, number: int, decided_at: datetime) -> None:
        super().__init__(
            f"the inputs and the outcome of round {number}, decided at"
            f" {decided_at:%Y-%m-%d %H:%M} UTC, were purged; its summary is kept for longer"
            " (FUGA_KEEP_INPUTS_DAYS, FUGA_KEEP_ROUNDS_DAYS)"
        )
        self.number = number
        self.decided_at = decided_at


class UriRefusedError(RegistryError):
    """A libvirt URI that could run programs or names what we do not allow."""

    def __init__(self, uri: str, reason: str) -> None:
        super().__init__(f"the URI {uri!r} is refused: {reason}")
        self.uri = uri
        self.reason = reason


class HostCredentialError(RegistryError):
    """What opens a host cannot be used. It never says where the files are, or what is in them."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"credential {name}: {reason}")
        self.name = name
        self.reason = reason


class ImageRefusedError(RegistryError):
    """A file that must not become an image."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the image is refused: {reason}")
        self.reason = reason


class ImageTooLargeError(RegistryError):
    """An image is larger than the operator allows."""

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"the image has more than {limit} bytes ({limit >> 30} GiB), which FUGA_IMAGE_MAX_GIB"
            " is set to"
        )
        self.limit = limit


class ImageUrlRefusedError(RegistryError):
    """A URL from which images are not fetched."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(f"the URL {url!r} is refused: {reason}")
        self.url = url
        self.reason = reason


class ImageStoreError(RegistryError):
    """The folder in which images lie cannot be used."""

    def __init__(self, folder: object, reason: str) -> None:
        super().__init__(f"the image store {folder} cannot be used: {reason}")
        self.folder = str(folder)
        self.reason = reason


class RegistryUnavailableError(RegistryError):
    """The database does not answer, or is busy for too long. Trying again may help."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the register center is not available: {reason}")
        self.reason = reason


class SettingsError(RegistryError):
    """Settings that cannot be read; says which, and what was found."""


class UnknownSettingError(SettingsError):
    """The settings file has names that no process knows."""

    def __init__(self, file: str, nearest: Mapping[str, str | None]) -> None:
        super().__init__(
            "; ".join(
                f"{file}: {name} is no setting" + (f"; is {near} meant?" if near else "")
                for name, near in nearest.items()
            )
        )
        self.names = tuple(nearest)


class SlotLoopPausedError(RegistryError):
    """An operator wants no slot to be decided; nothing was written."""

    def __init__(self, reason: str | None) -> None:
        super().__init__(f"the slot loop is paused: {reason}")
        self.reason = reason


class SchemaOutdatedError(RegistryError):
    """The database is older or newer than this code."""

    def __init__(
        self,
        found: str | None,
        expected: str,
        *,
        code_since: str | None = None,
        first: str | None = None,
    ) -> None:
        at = f"the database is at revision {found or 'none'}"
        if first is not None:
            said = (
                f"{at}, this code upgrades from {first} on: run `fuga db upgrade` of a version "
                "between them first"
            )
        elif code_since is not None:
            said = (
                f"{at} and serves code that knows {code_since}, this code knows {expected} at "
                "most: a newer fuga upgraded it; start that one here, too"
            )
        else:
            said = f"{at}, this code needs {expected}: run `fuga db upgrade`"
        super().__init__(said)
        self.found = found
        self.expected = expected


class StrangersInSchemaError(RegistryError):
    """SQLite's file holds what no migration of ours made, and what may run when we write."""

    def __init__(self, strangers: Sequence[str], file: str = "the database") -> None:
        told, more = "; ".join(strangers[:5]), len(strangers) - 5
        super().__init__(
            f"{file} is not as fuga made it: {told}{f'; and {more} more' if more > 0 else ''}. "
            "What is in a database runs when fuga writes to it: take a copy that you trust, or "
            "remove what is not fuga's"
        )
        self.strangers = tuple(strangers)


class AnsweredBeforeError(RegistryError):
    """A call with this key was answered: that answer is to be given again."""

    def __init__(self, key: str, status: int, body: str) -> None:
        super().__init__(f"Idempotency-Key {key!r} was answered {status} before")
        self.key = key
        self.status = status
        self.body = body


class IdempotencyConflictError(RegistryError):
    """The key was used before, for another body."""

    def __init__(self, key: str) -> None:
        super().__init__(f"Idempotency-Key {key!r} was used for another body")
        self.key = key


class IdempotencyInProgressError(RegistryError):
    """The first call with this key has not finished."""

    def __init__(self, key: str, running_for: timedelta) -> None:
        seconds = running_for.total_seconds()
        super().__init__(f"Idempotency-Key {key!r} is in progress, for {seconds:.0f} s by now")
        self.key = key
