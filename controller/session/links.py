"""One-time links: addresses of the web console that log in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from controller.client.http import Client

LINKS: Final = "login/links"


def login_url(url: str, made: dict[str, Any]) -> str:
    """Return the URL that logs a browser in with a code; its fragment is not sent to servers."""
    return f"{url}/web/#login={made['code']}"


def create_login_link(api: Client) -> str:
    """Create a login link for the caller and return its URL."""
    return login_url(api.url, api.post(LINKS, {}))
