"""One-time links: addresses of the web console that log in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from controller.client.http import Client

LINKS: Final = "login/links"


def link_of(url: str, made: dict[str, Any]) -> str:
    """Return the link; a browser does not send the part behind #."""
    return f"{url}/web/#login={made['code']}"


def new_link(api: Client) -> str:
    """Return a link for the caller."""
    return link_of(api.url, api.post(LINKS, {}))
