"""`ETag` and `If-Match`: changing a resource only if it is unchanged since it was read.

A version covers the fields that clients set, which the records mark (`registry.records.fields`).
Observed fields are left out, because they change with each poll. One table lists the resources
with versions; the rest of the API does not know of versions.
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
#: a resource of a collection, and perhaps a part of it
_PATH: Final = re.compile(r"/v1/([a-z-]+)/([^/]+)(/.*)?")
# Weak tags as well: a compressing proxy weakens tags, and ours identify contents, not bytes.
_TAG: Final = re.compile(r'\s*(?:W/)?("[!#-~]*")\s*')


@dataclass(frozen=True, slots=True)
class VersionedResource:
    """A kind of resource with versions: how to read it, and its key in paths."""

    kind: str
    read: Callable[[Registry, Any], Any]
    key_of: Callable[[str], Any] = str


#: By path without the key: the resources that PATCH, PUT or DELETE change.
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
        "tenants/budget": VersionedResource(
            "budget", lambda registry, name: registry.budgets.get(name)
        ),
        "tenants/quota": VersionedResource(
            "quota", lambda registry, name: registry.quotas.get(name)
        ),
        "vms": VersionedResource("vm", lambda registry, key: registry.vms.get(key), UUID),
        "volumes": VersionedResource(
            "volume", lambda registry, key: registry.volumes.get(key), UUID
        ),
    }
)

#: Collections whose members are only created and ended, or always replaced as a whole. A move
#: cannot be changed, only cancelled.
UNVERSIONED: Final = frozenset(
    {
        "images",
        "label-ratios",
        "moves",
        "plans",
        "prices",
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
    """Return the versioned resource at ``/v1/COLLECTION/KEY`` + ``below``, or None."""
    return VERSIONED.get(collection + below)


class ETagResponse:
    """Adds the version of the resource that a call returns to its answer, as `ETag`."""

    def __init__(self, names: HostNames, answer: Response) -> None:
        self._names = names
        self._answer = answer

    def __call__(self, record: T) -> T:
        """Return the record unchanged; set the answer's `ETag` to its version."""
        self._answer.headers["ETag"] = build_etag(record, secret=self._names.secret)
        return record


async def _etag_response(request: HttpRequest, response: Response) -> ETagResponse:
    return ETagResponse(services_of(request).host_names, response)


#: For endpoints that answer with one resource of a collection in `VERSIONED`.
ETagDep = Annotated[ETagResponse, Depends(_etag_response)]


def set_condition(request: HttpRequest, given: str) -> None:
    """Make a call's change conditional on the versions of its `If-Match`.

    Raises
    ------
    HeaderError
        If the header is malformed, or the resource has no version.
    """
    found = _PATH.fullmatch(request.scope["path"])
    wanted = entity_tags(given)
    versioned = versioned_resource_at(found[1], found[3] or "") if found is not None else None
    if found is None or versioned is None or request.method == "POST":
        raise HeaderError("If-Match", given, "no If-Match: this has no version")
    key, names = _parse_key(versioned, found[2]), services_of(request).host_names

    def check(registry: Registry) -> None:
        record = versioned.read(registry, key)
        current = build_etag(record, secret=names.secret)
        if wanted and current not in wanted:
            raise VersionMismatchError(versioned.kind, found[2], given, current)

    if key is not None:
        request.scope.setdefault("state", {})["only_if"] = Precondition(versioned.kind, key, check)


def build_etag(record: Any, *, secret: bytes) -> str:
    """Return the version of a record, as an entity tag.

    The id counts, because a resource may have the name of a deleted one. The digest is keyed with
    a secret, so that no reader can guess hidden values from it.
    """
    counted = {"id": getattr(record, "id", None), "set": _versioned_fields(record)}
    text = json.dumps(counted, sort_keys=True, default=str)
    return f'"{hmac.digest(secret, text.encode(), "sha256").hex()[:24]}"'


def entity_tags(header: str) -> Sequence[str]:
    """Parse an `If-Match` header into entity tags; empty: any version will do.

    Raises
    ------
    HeaderError
        If the header is neither ``*`` nor a list of entity tags.
    """
    if header.strip() == "*":
        return ()
    found = [_TAG.fullmatch(each) for each in header.split(",")]
    if not all(found):
        raise HeaderError("If-Match", header, "the ETag of an earlier answer with its quotes, or *")
    return [each[1] for each in found if each is not None]


def _versioned_fields(value: Any) -> Any:
    """Return the settable fields of a record, and of records in it, as JSON values."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            name: _versioned_fields(getattr(value, name)) for name in settable_fields(type(value))
        }
    if isinstance(value, Mapping):
        return {str(key): _versioned_fields(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_versioned_fields(each) for each in value]
    return value


def _parse_key(versioned: VersionedResource, typed: str) -> Any:
    """Parse the key of a resource in a path; None if it is malformed."""
    try:
        return versioned.key_of(typed)
    except ValueError:
        return None
