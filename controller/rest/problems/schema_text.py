"""Describes what the API accepts in a field of a call, from its own OpenAPI document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from controller.rest.problems.patterns import PATTERNS_SAID
from plain_text import join_names

Schema = Mapping[str, Any]

_REF: Final = "#/components/schemas/"
_LARGEST_SAID: Final = 2**53
_FORMATS: Final[Mapping[str, str]] = {"uuid": "an id: 32 hexadecimal digits, as in lists"}
_TYPES: Final[Mapping[str, str]] = {
    "boolean": "true or false",
    "null": "null",
    "integer": "a whole number",
    "number": "a number",
}


@dataclass(frozen=True, slots=True)
class ExpectedValues:
    """The values that are allowed in one field or parameter of a call."""

    path: tuple[str | int, ...]  #: the longest part of the path that the document knows
    schema: Schema | None
    document: Schema

    @property
    def description(self) -> str | None:
        """A description of the allowed values; None if the document lacks the field."""
        return None if self.schema is None else _schema_description(self.schema, self.document)

    @property
    def fields(self) -> list[str]:
        """The names of the fields, if the value is an object."""
        if self.schema is None:
            return []
        each = (
            found.get("properties", {}) for found in _schema_branches(self.schema, self.document)
        )
        return [name for properties in each for name in properties]

    @property
    def choices(self) -> list[str]:
        """The allowed words, if the value is one of a few."""
        if self.schema is None:
            return []
        branches = _schema_branches(self.schema, self.document)
        return [str(word) for found in branches for word in found.get("enum", ())]

    @property
    def pattern(self) -> str | None:
        """The pattern of the value's text, if it has one."""
        branches = () if self.schema is None else _schema_branches(self.schema, self.document)
        return next((str(found["pattern"]) for found in branches if "pattern" in found), None)


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation of the OpenAPI document: one method of one path."""

    document: Schema
    described: Schema

    @classmethod
    def of(cls, document: Schema, template: str, method: str) -> Operation:
        """Return an operation of the OpenAPI document; an empty one if it does not exist."""
        described = document.get("paths", {}).get(template, {}).get(method.lower(), {})
        return cls(document, described)

    def parameters(self, source: str) -> list[str]:
        """Return the names of the operation's parameters of one kind: query, path or header."""
        each = self.described.get("parameters", ())
        return [found["name"] for found in each if found["in"] == source]

    def expected_values(self, source: str, path: Sequence[str | int]) -> ExpectedValues:
        """Return the values that are allowed in a field of the body, or in a parameter."""
        if source == "body":
            content = self.described.get("requestBody", {}).get("content", {})
            schema = next((each.get("schema") for each in content.values()), None)
            return self._follow_path(schema, (), path)
        for found in self.described.get("parameters", ()):
            if path and (found["in"], found["name"]) == (source, path[0]):
                return self._follow_path(found["schema"], (path[0],), path[1:])
        return ExpectedValues(tuple(path), None, self.document)

    def _follow_path(
        self, schema: Schema | None, done: tuple[str | int, ...], rest: Sequence[str | int]
    ) -> ExpectedValues:
        """Follow a path through the schema, ignoring branches of unions that Pydantic adds."""
        rest = tuple(rest)
        for number, part in enumerate(rest):
            if schema is None:
                return ExpectedValues((*done, *rest[number:]), None, self.document)
            if rest[number + 1 : number + 2] == ("[key]",):  # the name itself is faulty
                return ExpectedValues(
                    (*done, part), _key_schema(schema, self.document), self.document
                )
            below = _child_schema(schema, part, self.document)
            if below is None:
                break
            schema, done = below, (*done, part)
        return ExpectedValues(done, schema, self.document)


def _schema_branches(schema: Schema, document: Schema) -> list[Schema]:
    """Return the alternatives of a schema with references resolved, without null."""
    if "$ref" in schema:
        name = schema["$ref"].removeprefix(_REF)
        return _schema_branches(document["components"]["schemas"][name], document)
    alternatives = schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf")
    if alternatives:
        return [found for each in alternatives for found in _schema_branches(each, document)]
    return [] if schema.get("type") == "null" else [schema]


def _child_schema(schema: Schema, part: str | int, document: Schema) -> Schema | None:
    """Return the schema of a member of an object, or of the items of a list."""
    for found in _schema_branches(schema, document):
        below = found.get("items") if isinstance(part, int) else _member_schema(found, part)
        if isinstance(below, Mapping):
            return below
    return None


def _member_schema(schema: Schema, name: str) -> Schema | None:
    named: Schema | None = schema.get("properties", {}).get(name)
    if named is not None:
        return named
    of_any = [*schema.get("patternProperties", {}).values(), schema.get("additionalProperties")]
    return next((each for each in of_any if isinstance(each, Mapping)), None)


def _key_schema(schema: Schema, document: Schema) -> Schema | None:
    """Return the schema of the names of an object's members."""
    for found in _schema_branches(schema, document):
        for pattern in found.get("patternProperties", ()):
            return {"type": "string", "pattern": pattern}
    return None


def _schema_description(schema: Schema, document: Schema) -> str:
    """Return the values that a schema allows, in words."""
    said = [_branch_description(each, document) for each in _schema_branches(schema, document)]
    return join_names(list(dict.fromkeys(said)), "or") if said else "null"


def _branch_description(schema: Schema, document: Schema) -> str:
    """Return the values that one alternative of a schema allows, in words."""
    words = [schema["const"]] if "const" in schema else schema.get("enum", ())
    if words:
        return f"one of {join_names(words, 'and')}" if len(words) > 1 else str(words[0])
    match schema.get("type"):
        case "integer" | "number" as kind:
            return _TYPES[kind] + _number_bounds(schema)
        case "string":
            return _text_description(schema)
        case "array":
            each = _schema_description(schema.get("items", {}), document)
            return f"a list{_maximum_text(schema, 'maxItems')}, each {each}"
        case "object":
            fields = list(schema.get("properties", ()))
            with_fields = f" with {join_names(fields, 'and')}" if fields else " of names and values"
            return f"an object{with_fields}{_maximum_text(schema, 'maxProperties')}"
        case kind:
            return _TYPES.get(str(kind), "another value (see /docs)")


def _number_bounds(schema: Schema) -> str:
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is None:
        return "" if high is None else f" of at most {_plain_number(high)}"
    if high is None or high >= _LARGEST_SAID:
        return f" of at least {_plain_number(low)}"
    return f" from {_plain_number(low)} to {_plain_number(high)}"


def _plain_number(number: float) -> str:
    """Return a number without an exponent: 0.000001 instead of 1e-06."""
    return f"{number:.6f}".rstrip("0").rstrip(".") if number % 1 else str(int(number))


def _maximum_text(schema: Schema, bound: str) -> str:
    return f", {schema[bound]} at most" if bound in schema else ""


def _text_description(schema: Schema) -> str:
    """Return the texts that a schema allows, in words."""
    pattern = schema.get("pattern")
    if pattern is not None:
        return PATTERNS_SAID.get(pattern, "text of another form (see /docs)")
    if schema.get("format") in _FORMATS:
        return _FORMATS[schema["format"]]
    min_length, max_length = schema.get("minLength"), schema.get("maxLength")
    if max_length is None:
        return "text"
    return f"{min_length or 0} to {max_length} characters"
