"""/web: the web console, from files that `scripts/build-web` builds from `web/`.

The files are equal for all callers and hold no secrets; the page reads its data from the API with
its user's token. An installation without the files serves none of these paths.
"""

from __future__ import annotations

import mimetypes
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request as HttpRequest
from starlette.responses import RedirectResponse, Response

from controller.rest.pages.static_pages import StaticPage

WEB_PATH: Final = "/web/"
BUILT: Final = Path(__file__).with_name("web_files")
_INDEX: Final = "index.html"

#: All scripts of the page are its own files, and it connects to the API only. No string may become
#: markup or script (`trusted-types 'none'`).
CONTENT_SECURITY_POLICY: Final = "; ".join(
    (
        *("default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self'"),
        *("connect-src 'self'", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"),
        *("require-trusted-types-for 'script'", "trusted-types 'none'"),
    )
)
_HEADERS: Final = MappingProxyType(
    {
        "Content-Security-Policy": CONTENT_SECURITY_POLICY,
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    }
)
#: For files whose name contains the hash of their content.
_FOR_EVER: Final = MappingProxyType({"Cache-Control": "public, max-age=31536000, immutable"})


def is_built(folder: Path = BUILT) -> bool:
    """Return whether this copy of fuga has the web console."""
    return (folder / _INDEX).is_file()


def web_pages(folder: Path = BUILT) -> Mapping[str, StaticPage]:
    """Return the page of the web console and its files, by path; empty if it was not built.

    All files are read now (half a megabyte), because an upgrade under a running API removes files
    that the page of the running version still loads.
    """
    try:
        found = _built_files(folder)
    except FileNotFoundError:  # it is being replaced at this moment
        return {}
    if _INDEX not in found:
        return {}
    pages = {}
    for name, content in found.items():
        media_type = mimetypes.guess_type(name)[0] or "application/octet-stream"
        headers = {**_HEADERS, **(_FOR_EVER if name.startswith("assets/") else {})}
        pages[WEB_PATH + name] = StaticPage(partial(str, content), media_type, headers)
    pages[WEB_PATH] = pages.pop(WEB_PATH + _INDEX)
    return pages


def _built_files(folder: Path) -> Mapping[str, str]:
    """Return the built files by their path below the folder."""
    return {
        file.relative_to(folder).as_posix(): file.read_text("utf-8")
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


async def to_web(request: HttpRequest) -> Response:
    """Redirect browsers from the API's root to the web console; programs get 404."""
    if request.url.path == "/" and "text/html" not in request.headers.get("accept", ""):
        raise HTTPException(404)
    # Relative, because a proxy may have put the API below a path of its own.
    there = "web/" if request.url.path == "/" else "./web/"
    return RedirectResponse(there, 307, {"Vary": "Accept", "Cache-Control": "no-cache"})
