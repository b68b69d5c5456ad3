"""Where the API is, and who calls: apart from the client, since that is slow to import."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiConnection:
    """The addresses of an API, with the token and the authority to use there."""

    url: str
    token: str | None
    others: tuple[str, ...] = ()  #: further addresses of the same API
    ca: str | None = None  #: PEM file of who may vouch for it; None: whom the system trusts

    @property
    def urls(self) -> tuple[str, ...]:
        """The API's addresses, the preferred one first."""
        return (self.url, *self.others)
