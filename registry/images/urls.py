"""Checks of image URLs against the operator's list of allowed prefixes.

A user who may add images names a URL, and a machine inside the site opens it. Without a list,
that user could reach any service that this machine reaches.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final
from urllib.parse import SplitResult, urlsplit

from registry.errors import ImageUrlRefusedError

_PORTS: Final = {"http": 80, "https": 443}
_PLAIN: Final = re.compile(r"[!-~]{1,500}")
#: Encodings of `/`, `.`, `?`, `#` and `%` that servers decode and comparisons miss: encoded,
#: twice or in an overlong form, control characters, parameters (`..;`), half an encoding.
_HIDDEN: Final = re.compile(
    r"%(?:2[35ef]|3[bf]|5c|[01][0-9a-f]|7f|c[01]|e0%80)|%(?![0-9a-f]{2})|[;\\]", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class _UrlOrigin:
    """The scheme, host, port and path of an image's URL, or of an allowed prefix."""

    scheme: str
    host: str
    port: int
    path: str

    def is_within(self, other: _UrlOrigin) -> bool:
        """Return whether an image's URL lies within an allowed prefix."""
        folder = other.path if other.path.endswith("/") else other.path + "/"
        return (self.scheme, self.host, self.port) == (other.scheme, other.host, other.port) and (
            self.path == other.path or self.path.startswith(folder)
        )


def check_image_url(url: str, prefixes: Collection[str]) -> str:
    """Return an image's URL, or raise `ImageUrlRefusedError` unless it lies within a prefix."""
    place = _parse_origin(url)
    for prefix in sorted(prefixes):
        if place.is_within(_parse_origin(prefix)):
            return url
    if not prefixes:
        raise ImageUrlRefusedError(
            url,
            "images are fetched from nowhere: FUGA_IMAGE_URLS is empty; list the image's folder"
            " there, for API and workers, or upload a file: `fuga image add NAME FILE`",
        )
    raise ImageUrlRefusedError(
        url, f"it is not within FUGA_IMAGE_URLS: {', '.join(sorted(prefixes))}"
    )


def _parse_origin(url: str) -> _UrlOrigin:
    """Return the parts of an image's URL that are compared, or raise `ImageUrlRefusedError`."""
    if not _PLAIN.fullmatch(url):
        raise ImageUrlRefusedError(url, "a URL is 1 to 500 printable ASCII characters")
    try:
        parts: SplitResult = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ImageUrlRefusedError(url, str(error)) from error
    if parts.scheme not in _PORTS or not parts.hostname:
        raise ImageUrlRefusedError(url, "it is not http://HOST/… or https://HOST/…")
    if "@" in parts.netloc:
        raise ImageUrlRefusedError(url, "it carries a user name")
    if parts.query or parts.fragment or "?" in url or "#" in url:
        raise ImageUrlRefusedError(url, "it carries a query or a fragment")
    path = parts.path or "/"
    if _HIDDEN.search(path) or {".", ".."} & set(path.split("/")):
        raise ImageUrlRefusedError(url, "its path leads elsewhere than it says")
    return _UrlOrigin(parts.scheme, parts.hostname.rstrip("."), port or _PORTS[parts.scheme], path)
