"""Writes YAML in block style; quotes every string that YAML might read as another type.

Quoted strings are JSON's, which are YAML's too, but for characters that YAML wants escaped.
PyYAML would not do: its fast writer refuses lone surrogates, which a hostile name may hold, and
its other one takes eight times as long.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from plain_text import plain_yaml

_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")
#: What readers of YAML 1.1 or 1.2 take for something else than text.
_WORDS: Final = frozenset({"true", "false", "yes", "no", "on", "off", "y", "n", "null"})


def yaml_text(value: Any) -> str:
    """Return a JSON value as a YAML document."""
    return "\n".join(_block_lines(value)) + "\n"


def _block_lines(value: Any) -> Iterator[str]:
    """Yield the YAML lines of a value, not indented."""
    if isinstance(value, Mapping) and value:
        for key, each in value.items():
            yield from _entry_lines(f"{_string_text(str(key))}:", each, indent="  ")
    elif isinstance(value, list | tuple) and value:
        for each in value:
            yield from _item_lines(each)
    else:
        yield _scalar_text(value)


def _entry_lines(head: str, value: Any, *, indent: str) -> Iterator[str]:
    """Yield the YAML lines of an entry of a mapping."""
    if isinstance(value, Mapping | list | tuple) and value:
        yield head
        yield from (indent + line for line in _block_lines(value))
    else:
        yield f"{head} {_scalar_text(value)}"


def _item_lines(value: Any) -> Iterator[str]:
    """Yield the YAML lines of an item of a list."""
    lines = _block_lines(value)
    yield f"- {next(lines)}"
    yield from (f"  {line}" for line in lines)


def _scalar_text(value: Any) -> str:
    match value:
        case str():
            return _string_text(value)
        case float():
            written = json.dumps(value)  # 1e-07, which readers of YAML 1.1 take for text
            mantissa, e, exponent = written.partition("e")
            return f"{mantissa}.0e{exponent}" if e and "." not in mantissa else written
        case Mapping():
            return "{}"
        case list() | tuple():
            return "[]"
        case _:
            return json.dumps(value)


def _string_text(value: str) -> str:
    if _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    return plain_yaml(json.dumps(value, ensure_ascii=False))
