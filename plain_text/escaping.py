r"""Escaping of text from hosts, guests and tenants before it is shown.

A terminal takes some characters for commands (C0 and C1 controls). Others reverse a line
(bidirectional controls), end it (line and paragraph separators), or are invisible (zero-width,
tags, fillers). Each of these becomes a visible escape, such as ``\x1b`` or ``\u202e``. All other
characters stay unchanged.
"""

from __future__ import annotations

import re
from typing import Final

#: Default-ignorable letters and marks of Unicode, and a blank: printable to Python, but invisible.
_INVISIBLE: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
_KEPT_IN_LINES: Final = frozenset("\n\t")


def plain(text: str) -> str:
    """Escape control and invisible characters and line ends: return the text on one line."""
    if text.isprintable() and not _INVISIBLE.search(text):
        return text
    return "".join(each if _is_visible(each) else _escape_character(each) for each in text)


def plain_lines(text: str) -> str:
    """Escape control and invisible characters, but keep line ends and tabs."""
    if text.isprintable() and not _INVISIBLE.search(text):
        return text
    return "".join(
        each if each in _KEPT_IN_LINES or _is_visible(each) else _escape_character(each)
        for each in text
    )


def plain_json(document: str) -> str:
    """Escape control and invisible characters in the strings of a JSON document.

    The escaped document has the same value. Characters beyond ASCII stand only in strings.
    """
    return _escape_document(document, pairs=True)


def plain_yaml(document: str) -> str:
    """Escape control and invisible characters in a YAML document with quoted strings."""
    return _escape_document(document, pairs=False)


def _escape_document(document: str, *, pairs: bool) -> str:
    """Escape control and invisible characters of a JSON or YAML document."""
    if document.isascii() and "\x7f" not in document:
        return document
    return "".join(
        each
        if each in _KEPT_IN_LINES or _is_visible(each)
        else _escape_as_unicode(each, pairs=pairs)
        for each in document
    )


def shorten_text(text: str, most: int) -> str:
    """Cut a text to at most ``most`` characters; the ending gives the full length."""
    if len(text) <= most:
        return text
    ending = f"… ({len(text)} characters)"
    return text[: max(0, most - len(ending))] + ending


def _is_visible(character: str) -> bool:
    """Return whether a character may be shown as it is."""
    return character.isprintable() and not _INVISIBLE.match(character)


def _escape_character(character: str) -> str:
    """Return a control or invisible character as an escape sequence in hexadecimal."""
    named = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(character)
    if named is not None:
        return named
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else _escape_as_unicode(character, pairs=False)


def _escape_as_unicode(character: str, *, pairs: bool) -> str:
    """Return a character as a Unicode escape: beyond 16 bits as a pair, or of eight digits."""
    code = ord(character)
    if code < 0x10000:
        return f"\\u{code:04x}"
    if not pairs:
        return f"\\U{code:08x}"
    above = code - 0x10000
    return f"\\u{0xD800 + (above >> 10):04x}\\u{0xDC00 + (above & 0x3FF):04x}"
