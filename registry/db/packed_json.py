"""Compressed JSON, for documents that are kept long and rarely read."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import Any


def pack_json(document: Mapping[str, Any]) -> bytes:
    """Return a document as compressed JSON; equal documents give equal bytes."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return zlib.compress(text.encode(), level=6)


def unpack_json(data: bytes) -> dict[str, Any]:
    """Return the document that `pack_json` compressed."""
    document: dict[str, Any] = json.loads(zlib.decompress(data))
    return document
