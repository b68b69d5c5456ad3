"""/docs: Swagger UI on the API's OpenAPI document; every byte of it comes from the API itself.

The package `fastapi-swagger` carries Swagger UI's files (Apache-2.0). It is used for these alone:
the page that it would serve needs inline scripts and keeps tokens in the browser's storage.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from importlib.resources import files
from types import MappingProxyType
from typing import Final

from controller.rest.pages.static_pages import StaticPage

DOCS_PATH: Final = "/docs"

#: Users paste tokens into this page, so all its scripts come from the API, and it connects to no
#: other server.
CONTENT_SECURITY_POLICY: Final = "; ".join(
    (
        *("default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self' data:"),
        *("connect-src 'self'", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"),
    )
)

_PAGE: Final = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>fuga</title>
<link rel="stylesheet" href="docs/swagger-ui.css">
<link rel="icon" href="data:,">
<div id="operations"></div>
<noscript>This needs JavaScript;
<a href="openapi.json">openapi.json</a> has the same contents.</noscript>
<script src="docs/swagger-ui-bundle.js"></script>
<script src="docs/start.js"></script>
</html>
"""

_START: Final = """"use strict";
// The page forgets a pasted token when you leave it.
SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#operations",
  validatorUrl: null,
  persistAuthorization: false,
  queryConfigEnabled: false,
  deepLinking: true,
  docExpansion: "list",
  defaultModelsExpandDepth: 0,
  filter: true,
});
"""

_SCRIPT: Final = "text/javascript"
#: Files of the package, with their media types.
_ASSETS: Final = MappingProxyType({"swagger-ui-bundle.js": _SCRIPT, "swagger-ui.css": "text/css"})


def docs_pages() -> Mapping[str, StaticPage]:
    """Return the page of Swagger UI and the files that it loads, by path."""
    policy = {"Content-Security-Policy": CONTENT_SECURITY_POLICY}
    return {
        DOCS_PATH: StaticPage(lambda: _PAGE, "text/html", policy),
        f"{DOCS_PATH}/start.js": StaticPage(lambda: _START, _SCRIPT),
        **{
            f"{DOCS_PATH}/{name}": StaticPage(partial(read_asset, name), media_type)
            for name, media_type in _ASSETS.items()
        },
    }


def read_asset(name: str) -> str:
    """Read one of Swagger UI's files."""
    return files("fastapi_swagger").joinpath("resources", name).read_text("utf-8")
