"""JSON pointers, and the same places as people read them: ``rules.zone``, ``hosts[3]``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

WHOLE: Final = "the body"
_INDEX: Final = re.compile(r"\d+")


def pointer_of(path: Sequence[object]) -> str:
    """Return the JSON pointer of a path into a body, as a URI fragment."""
    return "#" + "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)


def pointer_text(pointer: str) -> str:
    """Return a JSON pointer as people read it, such as ``hosts[3].name``."""
    parts = [
        part.replace("~1", "/").replace("~0", "~")
        for part in pointer.removeprefix("#").split("/")[1:]
    ]
    said = "".join(f"[{part}]" if _INDEX.fullmatch(part) else f".{part}" for part in parts)
    return said.removeprefix(".") or WHOLE
