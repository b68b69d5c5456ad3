"""The names by which disk images refer to their backing files.

QEMU accepts a path, `file:PATH`, a URI such as `nbd://HOST/EXPORT`, and `json:{...}` with nested
objects or dotted keys. libvirt resolves some of them, and reports the others in place of a path.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import unquote

_PROTOCOL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_QUOTES: Final = re.compile("[\"']")
_PIECES: Final = re.compile(r"[:?&=]")
#: Of one header: guests write headers into raw disks, and each name costs a look.
_MAX_NAMES: Final = 16
#: Maximum depth of JSON; a deeper document is split at its quotes.
_DEEPEST: Final = 64


def possible_files(name: str, above: str) -> tuple[str, ...]:
    """Return the paths and names of all files that a backing name may mean.

    ``above`` is the path of the file with the backing name; relative paths start at its folder. If
    the form is unknown, each part that may be a name is returned, so that no user of a file is
    overlooked. At most 16 are returned, absolute paths first.
    """
    names = sorted(
        filter(None, _candidate_names(name, 0)), key=lambda each: not each.startswith("/")
    )
    return tuple(dict.fromkeys(_resolved_path(each, above) for each in names))[:_MAX_NAMES]


def plain_path(name: str, above: str) -> str | None:
    """Return the normalized path if a backing name is a plain path; None for other forms."""
    return None if not name or _PROTOCOL.match(name) else _resolved_path(name, above)


def normalized_path(path: str) -> str:
    """Return an absolute path without `..` and doubled slashes, which libvirt keeps.

    Other names, such as volume names, are returned unchanged.
    """
    return posixpath.normpath(f"/{path.lstrip('/')}") if path.startswith("/") else path


def _resolved_path(name: str, above: str) -> str:
    """Return the path that a backing name means, relative to the folder of the file above."""
    return normalized_path(posixpath.join(above.rpartition("/")[0], name))


def _candidate_names(name: str, depth: int) -> Iterator[str]:
    """Yield the parts of a backing name that may be names of files."""
    if name.startswith("json:"):
        try:
            yield from _json_strings(json.loads(name.removeprefix("json:")), depth)
        except (ValueError, RecursionError):
            yield from _QUOTES.split(name)  # QEMU takes single quotes, too
    elif name.startswith("file:"):
        # QEMU reads a path after `file:`; removing the slashes of a URI is harmless.
        yield re.sub(r"^//(?:localhost)?(?=/)", "", name.removeprefix("file:"))
    elif _PROTOCOL.match(name):
        yield name.partition(":")[2]
        yield from _PIECES.split(unquote(name))
    else:
        yield name


def _json_strings(value: Any, depth: int, key: str = "") -> Iterator[str]:
    """Yield the strings in a JSON backing name that may be names of files."""
    if depth > _DEEPEST:
        raise RecursionError("the name nests too deep")
    if isinstance(value, str):
        if key.rpartition(".")[2] != "driver":
            yield from _candidate_names(value, depth + 1)
    elif isinstance(value, dict):
        for each, inner in value.items():
            yield from _json_strings(inner, depth + 1, each)
    elif isinstance(value, list):
        for inner in value:
            yield from _json_strings(inner, depth + 1, key)
