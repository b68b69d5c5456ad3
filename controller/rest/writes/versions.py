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
from typing import Annotated, Any, Final, TypeVar, cast
from uuid import UUID

from fastapi import Depends
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request as HttpRequest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

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
                | {"machine_uuid", "found_machine_uuid", "pool_silent_since"}
                | {"security_model", "shares_kept", "warnings", "can_filter"}
            ),
        ),
        "networks": Versioned(
            "network",
            lambda registry, name: registry.networks.get(name),
            observed=frozenset({"addresses_used"}),
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
                | {"unknown_since"}
            ),
        ),
    }
)

#: Collections whose things are only made and ended, or set whole whatever they were.
UNVERSIONED: Final = frozenset({"images", "label-ratios", "resources", "ssh-keys", "tokens"})


def versioned_at(collection: str, below: str = "") -> Versioned | None:
    """Return whose version a path is judged by: the thing's, but not for sessions beside it."""
    return None if below.startswith("/console") else VERSIONED.get(collection)


class Shown:
    """What a call shows of the one thing that it reads; its version goes with the answer."""

    def __init__(self, versioned: Versioned, secret: Callable[[], bytes]) -> None:
        self._versioned = versioned
        self._secret = secret
        self.version: str | None = None  #: None: nothing was shown

    def __call__(self, record: T) -> T:
        """Return the record as it is, and keep its version."""
        self.version = version_of(record, self._versioned.observed, secret=self._secret())
        return record


async def _shown(request: HttpRequest) -> Shown:
    return cast(Shown, request.state.shown)


#: For endpoints that answer with one thing of a collection in `VERSIONED`.
GivenShown = Annotated[Shown, Depends(_shown)]


class Versions:
    """Adds the `ETag` to what is read, and judges the `If-Match` of what is changed."""

    def __init__(self, app: ASGIApp, secret: Callable[[], bytes]) -> None:
        self.app = app
        self._secret = secret

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one call."""
        found = _PATH.fullmatch(scope["path"]) if scope["type"] == "http" else None
        given = Headers(scope=scope).get("if-match") if scope["type"] == "http" else None
        if given is not None and scope["method"] in UPDATES | {"POST"}:
            await self._update(found, given, scope, receive, send)
        elif (
            found is not None
            and scope["method"] == "GET"
            and found[3] is None
            and found[1] in VERSIONED
        ):
            await self._read(VERSIONED[found[1]], scope, receive, send)
        else:
            await self.app(scope, receive, send)

    async def _read(self, versioned: Versioned, scope: Scope, receive: Receive, send: Send) -> None:
        shown = Shown(versioned, self._secret)
        scope["state"]["shown"] = shown

        async def send_with_version(message: Message) -> None:
            if (
                message["type"] == "http.response.start"
                and message["status"] == 200
                and shown.version is not None
            ):
                MutableHeaders(scope=message)["ETag"] = shown.version
            await send(message)

        await self.app(scope, receive, send_with_version)

    async def _update(
        self, found: re.Match[str] | None, given: str, scope: Scope, receive: Receive, send: Send
    ) -> None:
        wanted = tags(given)
        versioned = versioned_at(found[1], found[3] or "") if found is not None else None
        if found is None or versioned is None or scope["method"] == "POST":
            raise HeaderError("If-Match", given, "no If-Match: this has no version")
        key = _key(versioned, found[2])

        def check(registry: Registry) -> None:
            record = versioned.read(registry, key)
            current = version_of(record, versioned.observed, secret=self._secret())
            if wanted and current not in wanted:
                raise VersionMismatchError(versioned.kind, found[2], given, current)

        if key is not None:
            scope.setdefault("state", {})["only_if"] = OnlyIf(versioned.kind, key, check)
        await self.app(scope, receive, send)


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
