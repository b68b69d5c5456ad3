r"""Text of hosts, guests, tenants and strangers, at the edge where somebody looks at it.

A terminal takes some characters for commands (C0 and C1 controls), others turn a line
around (bidirectional controls), end it (line and paragraph separators), or are not seen
at all (zero-width, tags, fillers). Here each becomes its escape, such as ``\x1b`` or
``\u202e``: visible, and of one line. What is kept is kept as it was given.
"""

from __future__ import annotations

import contextlib
import difflib
import ipaddress
import re
from collections.abc import Iterable, Sequence
from typing import Final

#: Names that are compared with what was typed, at most: each comparison takes microseconds.
_MOST_COMPARED: Final = 1_000
MOST_HOST_NAME: Final = 255  #: characters of a host name, and of its domain
_MAX_LISTED: Final = 8


def nearest(typed: str, names: Iterable[str]) -> list[str]:
    """Return at most three similar names, the most similar first."""
    wanted = typed.lower()
    likely = [name for name in names if _is_similar_candidate(wanted, name)][:_MOST_COMPARED]
    return difflib.get_close_matches(wanted, likely, n=3, cutoff=0.6)


def advice(typed: str, names: Sequence[str]) -> str | None:
    """Suggest similar names, or list all if they are few; else return None."""
    close = nearest(typed, names)
    if close:
        return f"did you mean {listed([plain(each) for each in close], 'or')}?"
    if names and len(names) <= _MAX_LISTED:
        shown = [plain(each) for each in sorted(names)]
        return f"known: {listed(shown, 'and')}"
    return None


def listed(names: Sequence[object], joined: str) -> str:
    """Return names as in a sentence: with commas and a last conjunction."""
    *first, last = map(str, names)
    return f"{', '.join(first)} {joined} {last}" if first else last


def _is_similar_candidate(wanted: str, name: str) -> bool:
    """Reject clearly different names cheaply, so that few of thousands are compared."""
    if abs(len(wanted) - len(name)) > 3:
        return False
    return wanted[:1] == name[:1] or wanted[-2:] == name[-2:]


#: Unicode's default-ignorable letters and marks, and a blank: printable to Python, seen by nobody.
_UNSEEN: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
_KEPT_IN_LINES: Final = frozenset("\n\t")


def plain(text: str) -> str:
    """Return it on one line, without a character that is not simply seen."""
    if text.isprintable() and not _UNSEEN.search(text):
        return text
    return "".join(each if _is_visible(each) else _escape_character(each) for each in text)


def plain_lines(text: str) -> str:
    """Return it the same way, but with its lines and tabs."""
    if text.isprintable() and not _UNSEEN.search(text):
        return text
    return "".join(
        each if each in _KEPT_IN_LINES or _is_visible(each) else _escape_character(each)
        for each in text
    )


def plain_json(document: str) -> str:
    """Return a JSON document that says the same and is harmless to look at.

    Beyond ASCII there are only the characters of strings, which may be escaped.
    """
    return _escape_document(document, pairs=True)


def plain_yaml(document: str) -> str:
    """Return a YAML document, whose strings are quoted, the same way."""
    return _escape_document(document, pairs=False)


def _escape_document(document: str, *, pairs: bool) -> str:
    if document.isascii() and "\x7f" not in document:
        return document
    return "".join(
        each
        if each in _KEPT_IN_LINES or _is_visible(each)
        else _escape_as_unicode(each, pairs=pairs)
        for each in document
    )


def shortened(text: str, most: int) -> str:
    """Return the beginning of a text that is longer than ``most``, and how long it was."""
    if len(text) <= most:
        return text
    ending = f"… ({len(text)} characters)"
    return text[: max(0, most - len(ending))] + ending


def _is_visible(character: str) -> bool:
    return character.isprintable() and not _UNSEEN.match(character)


def _escape_character(character: str) -> str:
    named = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(character)
    if named is not None:
        return named
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else _escape_as_unicode(character, pairs=False)


def _escape_as_unicode(character: str, *, pairs: bool) -> str:
    code = ord(character)
    if code < 0x10000:
        return f"\\u{code:04x}"
    if not pairs:
        return f"\\U{code:08x}"
    above = code - 0x10000
    return f"\\u{0xD800 + (above >> 10):04x}\\u{0xDC00 + (above & 0x3FF):04x}"


def split_host_name(hostname: str) -> tuple[str | None, str | None]:
    """Return a host name and its domain in the form in which two are compared; None: it has none.

    libvirt appends the domain while the network's names are answered, and leaves it out while
    they are not. What looks like an address has none. Either has at most 255 characters.
    """
    name = hostname.strip().rstrip(".").casefold()  # which may have more characters
    if name.rpartition(".")[2].isdigit() or ":" in name:
        with contextlib.suppress(ValueError):
            name = str(ipaddress.ip_address(name))
        return name[:MOST_HOST_NAME], None
    short, _, domain = name.partition(".")
    return short[:MOST_HOST_NAME] or None, domain[:MOST_HOST_NAME] or None


def are_host_names_apart(
    one: tuple[str | None, str | None], other: tuple[str | None, str | None]
) -> bool:
    """Return whether two split host names are of two machines; without a name, nothing is known.

    Names that differ in their domains alone do so if both have one.
    """
    if one[0] is None or other[0] is None:
        return False
    return one[0] != other[0] or (None not in {one[1], other[1]} and one[1] != other[1])
