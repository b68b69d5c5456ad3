"""`ETag` and `If-Match`: changing a thing only while it still is what was read.

A version is of the fields that clients set, which the records mark
(`registry.records.fields`). What the site does with a thing is left out: no version would
outlive the next poll. One table has the things with versions; the rest of the API knows
nothing of versions.
"""

from __future__ import annotations

import dataclasses
import hmac
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any, Final, TypeVar
from uuid import UUID

from fastapi import Depends, Response
from starlette.requests import Request as HttpRequest

from controller.host_aliases import HostNames
from controller.rest.dependencies import services_of
from controller.rest.problems.errors import HeaderError, VersionMismatchError
from registry import Precondition, Registry
from registry.db import settable_fields

T = TypeVar("T")

UPDATES: Final = frozenset({"PATCH", "PUT", "DELETE"})
#: a thing of a collection, and perhaps something below it
_PATH: Final = re.compile(r"/v1/([a-z-]+)/([^/]+)(/.*)?")
# Weak as well: a proxy that compresses weakens tags, and ours are of meanings, not of bytes.
_TAG: Final = re.compile(r'\s*(?:W/)?("[!#-~]*")\s*')


@dataclass(frozen=True, slots=True)
class VersionedResource:
    """How one kind of thing is read, and which path it has."""

    kind: str
    read: Callable[[Registry, Any], Any]
    key_of: Callable[[str], Any] = str


#: By path without the key. What PATCH, PUT or DELETE change belongs here.
VERSIONED: Final[Mapping[str, VersionedResource]] = MappingProxyType(
    {
        "hosts": VersionedResource("host", lambda registry, name: registry.hosts.get(name)),
        "networks": VersionedResource(
            "network", lambda registry, name: registry.networks.get(name)
        ),
        "requests": VersionedResource(
            "request", lambda registry, key: registry.requests.get(key), UUID
        ),
        "tenants": VersionedResource("tenant", lambda registry, name: registry.tenants.get(name)),
        "tenants/quota": VersionedResource(
            "quota", lambda registry, name: registry.quotas.get(name)
        ),
        "vms": VersionedResource("vm", lambda registry, key: registry.vms.get(key), UUID),
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


def versioned_resource_at(collection: str, below: str = "") -> VersionedResource | None:
    """Return what has a version at ``/v1/COLLECTION/KEY`` and what follows; None: nothing."""
    return VERSIONED.get(collection + below)


class ETagResponse:
    """What a call shows of the one thing that it reads; its version goes with the answer."""

    def __init__(self, names: HostNames, answer: Response) -> None:
        self._names = names
        self._answer = answer

    def __call__(self, record: T) -> T:
        """Return the record as it is; its version is the answer's `ETag`."""
        self._answer.headers["ETag"] = version_of(record, secret=self._names.secret)
        return record


async def _shown(request: HttpRequest, response: Response) -> ETagResponse:
    return ETagResponse(services_of(request).host_names, response)


#: For endpoints that answer with one thing of a collection in `VERSIONED`.
ETagDep = Annotated[ETagResponse, Depends(_shown)]


def note_condition(request: HttpRequest, given: str) -> None:
    """Let what a call changes rest on the versions that its `If-Match` gives.

    Raises
    ------
    HeaderError
        If it is not well-formed, or what the call changes has no version.
    """
    found = _PATH.fullmatch(request.scope["path"])
    wanted = entity_tags(given)
    versioned = versioned_resource_at(found[1], found[3] or "") if found is not None else None
    if found is None or versioned is None or request.method == "POST":
        raise HeaderError("If-Match", given, "no If-Match: this has no version")
    key, names = _key(versioned, found[2]), services_of(request).host_names

    def check(registry: Registry) -> None:
        record = versioned.read(registry, key)
        current = version_of(record, secret=names.secret)
        if wanted and current not in wanted:
            raise VersionMismatchError(versioned.kind, found[2], given, current)

    if key is not None:
        request.scope.setdefault("state", {})["only_if"] = Precondition(versioned.kind, key, check)


def version_of(record: Any, *, secret: bytes) -> str:
    """Return the version of a record, as an entity tag.

    The id counts: a thing that has the name of an earlier one is another thing. With a
    secret: a reader could guess hidden values from a plain hash.
    """
    counted = {"id": getattr(record, "id", None), "set": _set_by_clients(record)}
    text = json.dumps(counted, sort_keys=True, default=str)
    return f'"{hmac.digest(secret, text.encode(), "sha256").hex()[:24]}"'


def entity_tags(header: str) -> Sequence[str]:
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


def _set_by_clients(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            name: _set_by_clients(getattr(value, name)) for name in settable_fields(type(value))
        }
    if isinstance(value, Mapping):
        return {str(key): _set_by_clients(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_set_by_clients(each) for each in value]
    return value


def _key(versioned: VersionedResource, typed: str) -> Any:
    try:
        return versioned.key_of(typed)
    except ValueError:
        return None
