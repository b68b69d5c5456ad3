"""Errors of the register center that a caller can act on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from plain_text import join_names, shorten_text, suggest_names

_SAID: Final = 120


def quote_value(found: object) -> str:
    """Return a value as text for an error's message: strings are quoted and shortened."""
    match found:
        case None:
            return "nothing"
        case bool():
            return "true" if found else "false"
        case str():
            return repr(shorten_text(found, _SAID))
        case _:
            return shorten_text(str(found), _SAID)


class RegistryError(Exception):
    """Base of all errors of this package."""


class NotFoundError(RegistryError):
    """Nothing has this name or id, or it belongs to another tenant."""

    def __init__(self, kind: str, key: object) -> None:
        super().__init__(f"{kind} {str(key)!r} not found")
        self.kind = kind
        self.key = str(key)


class DuplicateError(RegistryError):
    """The name or value is already in use."""

    def __init__(self, kind: str, field: str, value: object, *, of: str | None = None) -> None:
        its = "" if of is None or field == "name" else f": {kind} {of}"
        super().__init__(f"a {kind} with {field} {str(value)!r} already exists{its}")
        self.kind = kind
        self.field = field
        self.value = str(value)


class AnotherMachineError(RegistryError):
    """Another machine answered at a host's address."""

    def __init__(self, host: str, what: str) -> None:
        super().__init__(
            f"another machine answers as host {host}: {what}, without any VM of host {host}; see"
            " `fuga doctor --hosts`"
        )
        self.host = host


class InvalidError(RegistryError):
    """A value is not allowed."""

    def __init__(self, field: str, found: object, allowed: str) -> None:
        super().__init__(f"{field}: found {quote_value(found)}, allowed is {allowed}")
        self.field = field
        self.found = found
        self.allowed = allowed


class UnknownNameError(InvalidError):
    """A field names something that does not exist for the caller."""

    def __init__(
        self,
        field: str,
        kind: str,
        key: object,
        *,
        hint: str | None = None,
        known: Sequence[str] = (),
    ) -> None:
        allowed = f"one of {join_names(known, 'and')}" if known else f"an existing {kind}"
        super().__init__(field, key, f"{allowed}, {hint}" if hint else allowed)
        message = f"{field}: {kind} {quote_value(key)} not found"
        also = hint or suggest_names(str(key), known) or (allowed if known else None)
        self.args = (f"{message}; {also}" if also else message,)
        self.kind = kind
        self.key = str(key)
        self.known = tuple(known)


class ConflictError(RegistryError):
    """The present state does not allow the call."""


class MoveRefusedError(ConflictError):
    """A VM cannot be moved, or not to that host; ``obstacle`` is the reason in one word."""

    def __init__(self, vm: str, obstacle: str, detail: str) -> None:
        super().__init__(f"VM {vm} cannot be moved: {detail}")
        self.vm = vm
        self.obstacle = obstacle
        self.detail = detail


class IllegalTransitionError(RegistryError):
    """The present state does not allow this change of state."""

    def __init__(self, state: object, event: object) -> None:
        super().__init__(f"{event} is not possible in state {state}")
        self.state = str(state)
        self.event = str(event)


class PlanStepError(IllegalTransitionError):
    """A plan is not in the state in which it can be approved or cancelled."""

    def __init__(self, id: object, state: str, event: object, approved_by: str | None) -> None:  # noqa: A002
        super().__init__(state, event)
        by = f" by {approved_by}" if approved_by else ""
        self.args = (
            {
                "pending": f"plan {id} is not decided yet: see `fuga plan show {id}` first",
                "approved": f"plan {id} is approved already{by}, and is being carried out",
                "done": f"plan {id} is carried out already: it was approved{by}"
                if approved_by
                else f"plan {id} is over: it has no useful move",
            }.get(state, f"plan {id} is {state}, and over"),
        )


class PlanMoveOverError(RegistryError):
    """A plan may not create one of its moves: it is over, or has created that move already."""

    def __init__(self, plan_id: object, position: int) -> None:
        super().__init__(f"plan {plan_id} does not ask for its move {position} any more")


class CapacityExceededError(RegistryError):
    """The host does not have enough capacity."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaExcess:
    """One limit that a request would exceed."""

    tenant: str  #: whose quota: the tenant's own, or that of a group above it
    resource: str
    limit: int
    used: int  #: requested already
    requested: int  #: by this call


class QuotaExceededError(RegistryError):
    """The request exceeds a quota."""

    def __init__(self, tenant: str, exceeded: Sequence[QuotaExcess]) -> None:
        listed = "; ".join(
            f"the quota of {each.tenant} is {each.limit} {each.resource}, {each.used} in use"
            f" and {each.requested} requested"
            for each in exceeded
        )
        super().__init__(
            f"{listed}. Request less, delete VMs or volumes, or ask an operator to raise the quota"
        )
        self.tenant = tenant
        self.exceeded = tuple(exceeded)


class ReservationError(ConflictError):
    """A reservation cannot be drawn on; ``why`` is the reason in one word."""

    def __init__(self, reservation: str, why: str, detail: str) -> None:
        super().__init__(
            f"reservation {reservation} cannot be drawn on: {detail};"
            " `fuga reservations` lists what there is"
        )
        self.reservation = reservation
        self.why = why
        self.detail = detail


class StaleEpochError(RegistryError):
    """The control centre's lease ended, or another process holds it."""

    def __init__(self, holder: str, epoch: int, found: str) -> None:
        super().__init__(f"{holder} holds no lease of epoch {epoch}: {found}")
        self.holder = holder
        self.epoch = epoch


class LeaseLostError(RegistryError):
    """A lease could not be renewed: it expired, and another process may hold it."""

    def __init__(self, name: str, holder: str, epoch: int) -> None:
        super().__init__(f"{holder} has lost the lease {name!r} of epoch {epoch}")
        self.name = name
        self.holder = holder
        self.epoch = epoch


class ClaimLostError(RegistryError):
    """The claim on a row is lost; its worker undoes its work."""

    def __init__(self, subject: object, found: str) -> None:
        super().__init__(f"the claim on {subject} is lost: {found}")
        self.subject = str(subject)
        self.found = found


class RoundPurgedError(RegistryError):
    """The inputs of the round have been purged."""

    def __init__(self, number: int, decided_at: datetime) -> None:
        super().__init__(
            f"the inputs and the outcome of round {number}, decided at"
            f" {decided_at:%Y-%m-%d %H:%M} UTC, were purged; its summary is kept for longer"
            " (FUGA_KEEP_INPUTS_DAYS, FUGA_KEEP_ROUNDS_DAYS)"
        )
        self.number = number
        self.decided_at = decided_at


class RoundDamagedError(RegistryError):
    """The stored inputs or the outcome of the round cannot be read."""

    def __init__(self, number: int) -> None:
        super().__init__(
            f"the inputs or the outcome of round {number} cannot be read: they were damaged after"
            " it was decided. Its summary and other rounds are not concerned; a backup from before"
            " has them whole"
        )
        self.number = number


class UriRefusedError(RegistryError):
    """The libvirt URI could run programs, or its scheme or host is not allowed."""

    def __init__(self, uri: str, reason: str) -> None:
        super().__init__(f"the URI {uri!r} is refused: {reason}")
        self.uri = uri
        self.reason = reason


class HostCredentialError(RegistryError):
    """A host credential cannot be used. The message shows neither paths nor contents."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"credential {name}: {reason}")
        self.name = name
        self.reason = reason


class ImageRefusedError(RegistryError):
    """The file is not allowed as an image."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the image is refused: {reason}")
        self.reason = reason


class ImageTooLargeError(RegistryError):
    """The image is larger than the operator allows."""

    def __init__(self, limit: int, size_bytes: int | None = None) -> None:
        length = f"more than {limit} bytes" if size_bytes is None else f"{size_bytes} bytes"
        super().__init__(
            f"the image has {length}, and the limit is {limit} ({limit >> 30} GiB): an operator"
            " sets it with FUGA_IMAGE_MAX_GIB"
        )
        self.limit = limit
        self.size_bytes = size_bytes


class ImageUrlRefusedError(RegistryError):
    """Images cannot be downloaded from this URL."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(f"the URL {url!r} is refused: {reason}")
        self.url = url
        self.reason = reason


class ImageStoreError(RegistryError):
    """The image store cannot be used."""

    def __init__(self, folder: object, reason: str) -> None:
        super().__init__(f"the image store {folder} cannot be used: {reason}")
        self.folder = str(folder)
        self.reason = reason


class ImageStoreFullError(ImageStoreError):
    """The disk of the image store has no room for an image."""

    def __init__(
        self, folder: object, *, needed_bytes: int, free_bytes: int, margin_bytes: int
    ) -> None:
        super().__init__(
            folder,
            f"the image needs {needed_bytes / (1 << 30):.2f} GiB; {free_bytes / (1 << 30):.2f} GiB"
            f" are free on its disk, and {margin_bytes / (1 << 30):.2f} GiB stay free"
            " (FUGA_IMAGE_MARGIN_GIB): free some, or convert a raw image to qcow2",
        )
        self.needed_bytes = needed_bytes
        self.free_bytes = free_bytes
        self.margin_bytes = margin_bytes


class RegistryUnavailableError(RegistryError):
    """The database does not answer, or is too busy. Try again."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the register center is not available: {reason}")
        self.reason = reason


class DatabaseFullError(RegistryUnavailableError):
    """The disk of the database is full. Try again once an operator has freed space there."""


class SettingsError(RegistryError):
    """Invalid settings; the message lists each with its value."""


class UnknownSettingError(SettingsError):
    """The settings file has unknown names."""

    def __init__(self, file: str, suggestions: Mapping[str, str | None]) -> None:
        super().__init__(
            "; ".join(
                f"{file}: {name} is not a setting" + (f"; did you mean {near}?" if near else "")
                for name, near in suggestions.items()
            )
        )
        self.names = tuple(suggestions)


class SlotLoopPausedError(RegistryError):
    """An operator paused the slot loop; nothing was written."""

    def __init__(self, reason: str | None) -> None:
        super().__init__(f"the slot loop is paused: {reason}")
        self.reason = reason


class SchemaOutdatedError(RegistryError):
    """The database's schema is older or newer than this version of fuga."""

    def __init__(
        self,
        found: str | None,
        expected: str,
        *,
        code_since: str | None = None,
        first: str | None = None,
        pass_first: str | None = None,
    ) -> None:
        at = f"the database is at revision {found or 'none'}"
        if pass_first is not None:
            said = (
                f"{at}, this version upgrades from {first} on: run `fuga db upgrade` of the fuga "
                f"at commit {pass_first} first (in a checkout: `git worktree add ../fuga-first "
                f"{pass_first}`, then `pip install ../fuga-first` into a virtual environment of "
                "its own), then that of this version"
            )
        elif first is not None:
            said = (
                f"{at}, this version upgrades from {first} on, and no version is left that "
                "upgrades an older one: begin with a new database"
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


class ForeignSchemaObjectsError(RegistryError):
    """The SQLite file holds objects that fuga did not make and that could run code."""

    def __init__(self, strangers: Sequence[str], file: str = "the database") -> None:
        listed, more = "; ".join(strangers[:5]), len(strangers) - 5
        super().__init__(
            f"{file} has foreign objects: {listed}{f'; and {more} more' if more > 0 else ''}. "
            "They could run when fuga writes: use a copy that you trust, or "
            "remove them"
        )
        self.strangers = tuple(strangers)


class AnsweredBeforeError(RegistryError):
    """An earlier call with this key did the work; ``body`` is its stored record."""

    def __init__(self, key: str, status: int, body: str) -> None:
        super().__init__(f"Idempotency-Key {key!r} was answered {status} before")
        self.key = key
        self.status = status
        self.body = body


class IdempotencyConflictError(RegistryError):
    """The key was already used with another body."""

    def __init__(self, key: str) -> None:
        super().__init__(f"Idempotency-Key {key!r} was used for another body")
        self.key = key


class IdempotencyInProgressError(RegistryError):
    """The first call with this key is still in progress."""

    def __init__(self, key: str) -> None:
        super().__init__(
            f"the first call with Idempotency-Key {key!r} is in progress; repeat this one later"
        )
        self.key = key
