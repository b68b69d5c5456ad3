"""Which differences between two OpenAPI documents break a program that was written for the first.

What it sends must still be taken; what it reads must still be there, and be what it was.
More paths, optional inputs and fields in answers break nobody.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Json = Mapping[str, Any]
_METHODS = ("get", "post", "put", "patch", "delete")
#: Bounds of an input: what may only rise, and what may only fall.
_UPPER = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
_LOWER = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")


def breaking_changes(before: Json, after: Json) -> list[str]:
    """Name every change that breaks somebody; empty: there is none."""
    return sorted(set(_Comparison(before, after).changes()))


class _Comparison:
    def __init__(self, before: Json, after: Json) -> None:
        self._documents = (before, after)
        self._seen: set[tuple[str, str, bool]] = set()

    def changes(self) -> Iterator[str]:
        before, after = self._documents
        for path, operations in before["paths"].items():
            for method in _METHODS:
                if method not in operations:
                    continue
                now = after["paths"].get(path, {}).get(method)
                place = f"{method.upper()} {path}"
                if now is None:
                    yield f"{place} is gone"
                else:
                    yield from self._operation(place, operations[method], now)

    def _operation(self, place: str, before: Json, after: Json) -> Iterator[str]:
        yield from self._parameters(place, before, after)
        yield from self._body(place, before.get("requestBody"), after.get("requestBody"))
        for status, answer in before["responses"].items():
            if not status.startswith("2"):
                continue
            if status not in after["responses"]:
                yield f"{place} no longer answers {status}"
                continue
            was, now = _content(answer), _content(after["responses"][status])
            if was is not None and now is None:
                yield f"{place} {status} has no JSON any more"
            elif was is not None and now is not None:
                yield from self._told(f"{place} {status}", was, now)

    def _parameters(self, place: str, before: Json, after: Json) -> Iterator[str]:
        was = {(each["in"], each["name"]): each for each in before.get("parameters", ())}
        now = {(each["in"], each["name"]): each for each in after.get("parameters", ())}
        for key, parameter in was.items():
            name = f"{place} {key[0]} parameter {key[1]}"
            if key not in now:
                if key[0] != "path":  # which its path tells
                    yield f"{name} is gone"
                continue
            if now[key].get("required") and not parameter.get("required"):
                yield f"{name} is required now"
            yield from self._taken(name, parameter["schema"], now[key]["schema"])
        for key, parameter in now.items():
            if key not in was and key[0] != "path" and parameter.get("required"):
                yield f"{place} {key[0]} parameter {key[1]} is new and required"

    def _body(self, place: str, before: Json | None, after: Json | None) -> Iterator[str]:
        if after is None:
            if before is not None:
                yield f"{place} takes no body any more"
            return
        if before is None:
            if after.get("required"):
                yield f"{place} requires a body now"
            return
        was, now = _content(before), _content(after)
        if was is not None and now is not None:
            yield from self._taken(f"{place} body", was, now)

    def _taken(self, place: str, before: Json, after: Json) -> Iterator[str]:
        """Compare what is sent: everything that was taken is still taken."""
        was, now = self._resolved(before, 0), self._resolved(after, 1)
        if self._met(before, after, sent=True):
            return
        lost = _types(was, self, 0) - _types(now, self, 1)
        if lost and _types(now, self, 1):
            yield f"{place} no longer takes {', '.join(sorted(lost))}"
            return
        yield from _narrowed(place, was, now)
        fields, known = was.get("properties", {}), now.get("properties", {})
        for name in set(now.get("required", ())) - set(was.get("required", ())):
            yield f"{place}.{name} is required now"
        for name, schema in fields.items():
            if name in known:
                yield from self._taken(f"{place}.{name}", schema, known[name])
            elif now.get("additionalProperties") is False:
                yield f"{place}.{name} is no longer taken"
        for key in ("items", "additionalProperties"):
            if isinstance(was.get(key), Mapping) and isinstance(now.get(key), Mapping):
                yield from self._taken(f"{place}[]", was[key], now[key])
        yield from self._variants(place, was, now, self._taken)

    def _told(self, place: str, before: Json, after: Json) -> Iterator[str]:
        """Compare what is answered: everything that was there is there, and is what it was."""
        was, now = self._resolved(before, 0), self._resolved(after, 1)
        if self._met(before, after, sent=False):
            return
        types = _types(was, self, 0)
        new = _types(now, self, 1) - types
        if types and new:
            yield f"{place} may be {', '.join(sorted(new))} now"
            return
        known = now.get("properties", {})
        for name, schema in was.get("properties", {}).items():
            if name not in known:
                yield f"{place}.{name} is gone"
                continue
            if name in was.get("required", ()) and name not in now.get("required", ()):
                yield f"{place}.{name} may be missing now"
            yield from self._told(f"{place}.{name}", schema, known[name])
        for key in ("items", "additionalProperties"):
            if isinstance(was.get(key), Mapping) and isinstance(now.get(key), Mapping):
                yield from self._told(f"{place}[]", was[key], now[key])
        yield from self._variants(place, was, now, self._told)

    def _variants(self, place: str, was: Json, now: Json, compare: Any) -> Iterator[str]:
        """Compare the one variant of an optional thing that is not null, where there is one."""
        one, other = _not_null(was), _not_null(now)
        if (one is not was or other is not now) and one is not None and other is not None:
            yield from compare(place, one, other)

    def _resolved(self, schema: Json, side: int) -> Json:
        while "$ref" in schema:
            name = schema["$ref"].rsplit("/", 1)[1]
            schema = self._documents[side]["components"]["schemas"][name]
        return schema

    def _met(self, before: Json, after: Json, *, sent: bool) -> bool:
        """Tell whether two named schemas were compared before: they may contain themselves."""
        pair = (str(before.get("$ref")), str(after.get("$ref")), sent)
        if "$ref" not in before or "$ref" not in after:
            return False
        if pair in self._seen:
            return True
        self._seen.add(pair)
        return False


def _content(message: Json) -> Json | None:
    found: Json | None = message.get("content", {}).get("application/json", {}).get("schema")
    return found


def _types(schema: Json, comparison: _Comparison, side: int) -> set[str]:
    """Return the JSON types that a schema allows; empty: any."""
    if "anyOf" in schema:
        found = [
            _types(comparison._resolved(each, side), comparison, side) for each in schema["anyOf"]
        ]
        return set().union(*found) if all(found) else set()
    declared = schema.get("type", ())
    types = {declared} if isinstance(declared, str) else set(declared)
    return types | {"integer"} if "number" in types else types


def _not_null(schema: Json) -> Json | None:
    if "anyOf" not in schema:
        return schema
    rest = [each for each in schema["anyOf"] if each.get("type") != "null"]
    return rest[0] if len(rest) == 1 else None


def _narrowed(place: str, was: Json, now: Json) -> Iterator[str]:
    if "enum" in now or "const" in now:
        allowed = now.get("enum", [now.get("const")])
        missing = [each for each in was.get("enum", [was.get("const")]) if each not in allowed]
        if missing:
            yield f"{place} no longer takes {', '.join(str(each) for each in missing)}"
    for bounds, tighter in ((_UPPER, -1), (_LOWER, 1)):
        for bound in bounds:
            if bound in now and (bound not in was or (now[bound] - was[bound]) * tighter > 0):
                yield f"{place} {bound} is {now[bound]} now, was {was.get(bound, 'none')}"
    if "pattern" in now and now["pattern"] != was.get("pattern"):
        yield f"{place} has another pattern: {now['pattern']}"
