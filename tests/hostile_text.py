"""Text with everything in it that must not reach a terminal, and where such text may come from."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from typing import Any

#: C0 and C1, directions, separators, what is not seen, half a character; and markup of rich.
HOSTILE = (
    "h\x1b[2J\x1b]0;owned\x07\x9b31m\x85\x00\x08\x7f\r\nfuga: all is well\n"
    "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c"
    "\u200b\u200c\u200d\u2060\ufeff\u00ad\u034f\u2028\u2029\U000e0041\ufe0f\u3164\ud800"
    "[bold]x[/bold][link=https://evil.example]y[/link][/]"
)
_DIRECTIONS = {"LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI"}


def is_forbidden(character: str) -> bool:
    """Tell, by Unicode's tables and not by our code, whether it must not reach a terminal."""
    category = unicodedata.category(character)
    return category in ("Cc", "Cf", "Cs", "Zl", "Zp") or (
        unicodedata.bidirectional(character) in _DIRECTIONS
    )


def hostile_answer(schema: Mapping[str, Any], schemas: Mapping[str, Any], text: str) -> Any:
    """Return what a schema of our API allows, with ``text`` wherever it allows any text."""
    if "$ref" in schema:
        return hostile_answer(schemas[schema["$ref"].rsplit("/", 1)[1]], schemas, text)
    for word in ("anyOf", "oneOf", "allOf"):
        if word in schema:
            real = [each for each in schema[word] if each.get("type") != "null"]
            return hostile_answer((real or schema[word])[0], schemas, text)
    if "const" in schema or "enum" in schema:
        return schema.get("const", schema.get("enum", [None])[0])
    match schema.get("type"):
        case "object":
            found = {
                key: None if key == "parent" else hostile_answer(each, schemas, text)
                for key, each in schema.get("properties", {}).items()
            }
            extra = schema.get("additionalProperties")
            if isinstance(extra, Mapping) and extra:
                found[text] = hostile_answer(extra, schemas, text)
            return found
        case "array":
            items = schema.get("prefixItems") or [schema.get("items", {})]
            return [hostile_answer(each, schemas, text) for each in items]
        case "string":
            return _string(schema.get("format"), text)
        case "integer" | "number":
            return max(1, schema.get("minimum", 1))
        case "boolean":
            return True
        case "null":
            return None
        case _:
            return text


def _string(form: str | None, text: str) -> str:
    match form:
        case "date-time":
            return "2026-11-22T12:00:00+00:00"
        case "uuid":
            return "01a2037e-d435-7626-b775-ea367e9aa675"
        case "byte" | "base64":
            return "eA=="
        case _:
            return text
