"""A version is of the fields that clients set, which each record marks."""

from __future__ import annotations

import dataclasses
import typing
from typing import Any

import pytest

from controller.rest.etags import VERSIONED, build_etag
from controller.rest.pages.published import openapi_document
from controller.rest.schemas.volumes import Volume
from registry.db import FieldRole, field_roles, settable_fields
from registry.hosts import Host
from registry.networks import Network
from registry.requests import Request, Vm
from registry.tenancy import Quota, Tenant
from registry.usage import Budget

DOCUMENT = openapi_document()
PATHS: dict[str, Any] = DOCUMENT["paths"]
SCHEMAS: dict[str, dict[str, Any]] = DOCUMENT["components"]["schemas"]
RECORDS = {
    each.__name__: each for each in (Budget, Host, Network, Quota, Request, Tenant, Vm, Volume)
}
WITH_ETAG = sorted(
    path
    for path, operations in PATHS.items()
    if "ETag" in operations.get("get", {}).get("responses", {}).get("200", {}).get("headers", {})
)
#: Fields of a PATCH that have another name in what they change.
SETS = {
    "warn_at": "limits",
    "overrides": "inventories",
    "reserved": "inventories",
    "ratios": "inventories",
    "remove": "count",
    "ttl_s": "expires_at",
}


def answer(path: str, method: str = "get") -> dict[str, Any]:
    """Return the schema of what a path answers with, or takes."""
    operation = PATHS[path][method]
    found = operation["responses"]["200"] if method == "get" else operation["requestBody"]
    return SCHEMAS[_name(found)]


def record_of(path: str) -> type:
    return RECORDS[_name(PATHS[path]["get"]["responses"]["200"])]


def _name(found: dict[str, Any]) -> str:
    reference: str = found["content"]["application/json"]["schema"]["$ref"]
    return reference.rpartition("/")[2]


def parts(record: type) -> set[type]:
    """Return a record and all dataclasses within what clients set of it."""
    found = {record}
    hints = typing.get_type_hints(record)
    for name in settable_fields(record):
        for each in _named(hints[name]):
            if dataclasses.is_dataclass(each):
                found |= parts(typing.cast(type, each))
    return found


def _named(hint: Any) -> list[Any]:
    return [hint] + [found for each in typing.get_args(hint) for found in _named(each)]


def keys(path: str) -> str:
    """Return the key in `VERSIONED` of a path."""
    return "/".join(each for each in path.split("/")[2:] if not each.startswith("{"))


def an(record: type, **fields: Any) -> Any:
    """Return a record without meaning: a text in each field."""
    return record(**{each.name: f"a {each.name}" for each in dataclasses.fields(record)} | fields)


def test_each_path_with_a_version_has_an_etag():
    assert sorted(map(keys, WITH_ETAG)) == sorted(VERSIONED)


@pytest.mark.parametrize("path", WITH_ETAG)
def test_each_field_of_an_answer_is_either_settable_or_observed(path: str):
    record = record_of(path)
    assert set(answer(path)["properties"]) == set(field_roles(record))
    assert None not in field_roles(record).values(), field_roles(record)
    for part in parts(record):
        roles = set(field_roles(part).values())
        assert None not in roles or roles == {None}, f"{part.__name__}: mark all fields or none"


@pytest.mark.parametrize("path", WITH_ETAG)
def test_a_version_changes_with_what_is_settable_and_with_nothing_else(path: str):
    for part in parts(record_of(path)):
        before = build_etag(an(part), secret=b"s")
        counts = {"id", *settable_fields(part)}

        for each in dataclasses.fields(part):
            after = build_etag(an(part, **{each.name: "another"}), secret=b"s")
            assert (after != before) == (each.name in counts), f"{part.__name__}.{each.name}"


@pytest.mark.parametrize("path", [each for each in WITH_ETAG if "patch" in PATHS[each]])
def test_whatever_a_patch_takes_is_settable(path: str):
    takes = answer(path, "patch")["properties"]

    assert {SETS.get(each, each) for each in takes} <= set(settable_fields(record_of(path)))


def test_a_field_with_no_role_or_with_two_is_found():
    @dataclasses.dataclass
    class Record:
        one: typing.Annotated[int, FieldRole.SETTABLE]
        neither: int
        both: typing.Annotated[int, FieldRole.SETTABLE, FieldRole.OBSERVED]

    assert field_roles(Record) == {"one": FieldRole.SETTABLE, "neither": None, "both": None}
    assert settable_fields(Record) == ("one",)
