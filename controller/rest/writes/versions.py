"""`ETag` and `If-Match`: changing a thing only while it still is what was read.

A version says what of a thing its clients set; what the cluster does with it (where it
runs, what the monitor saw) is left out, else no version would outlive the next poll.
One table says it for every collection; the rest of the API knows nothing of versions.
"""

from __future__ import annotations

import dataclasses
import hmac
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, Any, Final, TypeVar
from uuid import UUID

from fastapi import Depends, Response
from starlette.requests import Request as HttpRequest

from controller.host_names import HostNames
from controller.rest.dependencies import services_of
from controller.rest.problems.errors import HeaderError, VersionMismatchError
from registry import OnlyIf, Registry

T = TypeVar("T")

UPDATES: Final = frozenset({"PATCH", "PUT", "DELETE"})
#: a thing of a collection, and perhaps something below it
_PATH: Final = re.compile(r"/v1/([a-z-]+)/([^/]+)(/.*)?")
# Weak as well: a proxy that compresses weakens tags, and ours are of meanings, not of bytes.
_TAG: Final = re.compile(r'\s*(?:W/)?("[!#-~]*")\s*')


@dataclass(frozen=True, slots=True)
class Versioned:
    """How things of one collection are told apart, read, and what of them is a version."""

    kind: str
    read: Callable[[Registry, Any], Any]
    key_of: Callable[[str], Any] = str
    observed: frozenset[str] = field(default=frozenset())  #: left out, at any depth


#: By collection. A new one that is changed by PATCH, PUT or DELETE belongs here.
VERSIONED: Final[Mapping[str, Versioned]] = MappingProxyType(
    {
        "hosts": Versioned(
            "host",
            lambda registry, name: registry.hosts.get(name),
            observed=frozenset(
                {"health", "version", "detected", "foreign", "committed", "capacity"}
                | {"last_polled_at", "last_error", "missed_polls", "held_back_until"}
                | {"failed_builds", "fence", "returning_since"}
                | {"machine_uuid", "found_machine_uuid", "same_machine_as", "pool_silent_since"}
                | {"security_model", "shares_kept", "warnings", "can_filter"}
            ),
        ),
        "networks": Versioned(
            "network",
            lambda registry, name: registry.networks.get(name),
            observed=frozenset({"addresses_used", "warnings"}),
        ),
        "requests": Versioned(
            "request",
            lambda registry, key: registry.requests.get(key),
            key_of=UUID,
            observed=frozenset(
                {"state", "waiting", "vms_placed", "updated_at"} | {"vms_running", "vms_unknown"}
            ),
        ),
        "tenants": Versioned(
            "tenant",
            lambda registry, name: registry.tenants.get(name),
        ),
        "vms": Versioned(
            "vm",
            lambda registry, key: registry.vms.get(key),
            key_of=UUID,
            observed=frozenset(
                {"host", "observed", "assignment_id", "assignment_state", "round"}
                | {"generation", "last_error", "power", "deleted_at", "waits_for_image"}
                | {"unknown_since", "paused_since", "moving_to", "move_id", "ends_at", "ending_for"}
            ),
        ),
    }
)

#: Collections whose things are only made and ended, or set whole whatever they were. Of a move
#: nothing can be changed: who wants another one cancels it.
UNVERSIONED: Final = frozenset(
    {
        "images",
        "label-ratios",
        "moves",
        "plans",
        "reservations",
        "resources",
        "rolls",
        "ssh-keys",
        "token",
        "tokens",
        "what-ifs",
    }
)


def versioned_at(collection: str, below: str = "") -> Versioned | None:
    """Return whose version a path is judged by: the thing's, but not for sessions beside it."""
    return None if below.startswith("/console") else VERSIONED.get(collection)


class Shown:
    """What a call shows of the one thing that it reads; its version goes with the answer."""

    def __init__(self, versioned: Versioned, names: HostNames, answer: Response) -> None:
        self._versioned = versioned
        self._names = names
        self._answer = answer

    def __call__(self, record: T) -> T:
        """Return the record as it is; its version is the answer's `ETag`."""
        version = version_of(record, self._versioned.observed, secret=self._names.secret)
        self._answer.headers["ETag"] = version
        return record


async def _shown(request: HttpRequest, response: Response) -> Shown:
    found = _PATH.fullmatch(request.scope["path"])
    assert found is not None  # noqa: S101 - a route of one thing of a collection
    return Shown(VERSIONED[found[1]], services_of(request).host_names, response)


#: For endpoints that answer with one thing of a collection in `VERSIONED`.
GivenShown = Annotated[Shown, Depends(_shown)]


def note_condition(request: HttpRequest, given: str) -> None:
    """Let what a call changes rest on the versions that its `If-Match` gives.

    Raises
    ------
    HeaderError
        If it is not well-formed, or what the call changes has no version.
    """
    found = _PATH.fullmatch(request.scope["path"])
    wanted = tags(given)
    versioned = versioned_at(found[1], found[3] or "") if found is not None else None
    if found is None or versioned is None or request.method == "POST":
        raise HeaderError("If-Match", given, "no If-Match: this has no version")
    key, names = _key(versioned, found[2]), services_of(request).host_names

    def check(registry: Registry) -> None:
        record = versioned.read(registry, key)
        current = version_of(record, versioned.observed, secret=names.secret)
        if wanted and current not in wanted:
            raise VersionMismatchError(versioned.kind, found[2], given, current)

    if key is not None:
        request.scope.setdefault("state", {})["only_if"] = OnlyIf(versioned.kind, key, check)


def version_of(record: Any, observed: frozenset[str] = frozenset(), *, secret: bytes) -> str:
    """Return the version of a record, as an entity tag.

    With a secret: of a plain hash its reader could try what it is not told.
    """
    text = json.dumps(_counted(dataclasses.asdict(record), observed), sort_keys=True, default=str)
    return f'"{hmac.digest(secret, text.encode(), "sha256").hex()[:24]}"'


def tags(header: str) -> Sequence[str]:
    """Read an `If-Match`; empty: any version will do.

    Raises
    ------
    HeaderError
        If it is neither ``*`` nor a list of entity tags.
    """
    if header.strip() == "*":
        return ()
    found = [_TAG.fullmatch(each) for each in header.split(",")]
    if not all(found):
        raise HeaderError("If-Match", header, "the ETag of an earlier answer with its quotes, or *")
    return [each[1] for each in found if each is not None]


def _counted(value: Any, observed: frozenset[str]) -> Any:
    if isinstance(value, Mapping):
        return {str(k): _counted(v, observed) for k, v in value.items() if k not in observed}
    if isinstance(value, list | tuple):
        return [_counted(each, observed) for each in value]
    return value


def _key(versioned: Versioned, typed: str) -> Any:
    try:
        return versioned.key_of(typed)
    except ValueError:
        return None
