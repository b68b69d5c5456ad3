"""Collections of the API's resources, with the types of the published OpenAPI document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Generic, Protocol, TypeVar, cast
from urllib.parse import quote

T = TypeVar("T")


class ApiCaller(Protocol):
    """Calls paths of the API below ``/v1``."""

    def get(self, path: str, **query: Any) -> dict[str, Any]:
        """Read a resource of the API."""

    def versioned(self, path: str) -> tuple[dict[str, Any], str | None]:
        """Read a resource of the API with its version."""

    def post(
        self, path: str, body: Mapping[str, Any] | None = None, **query: Any
    ) -> dict[str, Any]:
        """Create a resource of the API."""

    def patch(
        self, path: str, body: Mapping[str, Any], *, if_match: str | None = None, **query: Any
    ) -> dict[str, Any]:
        """Change a resource of the API."""

    def delete(self, path: str, *, if_match: str | None = None) -> dict[str, Any]:
        """Delete a resource of the API."""

    def items(
        self, path: str, *, max_items: int | None = None, **query: Any
    ) -> Iterator[dict[str, Any]]:
        """Yield the items of a list, page by page."""


class Collection(Generic[T]):
    """The resources of one kind, below one path of the API."""

    def __init__(self, caller: ApiCaller, path: str) -> None:
        self.caller = caller
        self.path = path

    def list(self, *, max_items: int | None = None, **query: Any) -> Iterator[T]:
        """Yield the members page by page, up to a maximum."""
        return cast(Iterator[T], self.caller.items(self.path, max_items=max_items, **query))

    def get(self, key: object) -> T:
        """Return one member by its name or id."""
        return cast(T, self.caller.get(self._member_path(key)))

    def read(self, key: object) -> tuple[T, str | None]:
        """Return one member and its version, for ``if_match``."""
        found, version = self.caller.versioned(self._member_path(key))
        return cast(T, found), version

    def create(self, body: Mapping[str, Any]) -> T:
        """Create one member. Repeated attempts of the call create no second one."""
        return cast(T, self.caller.post(self.path, body))

    def change(self, key: object, body: Mapping[str, Any], *, if_match: str | None = None) -> T:
        """Change one member; with ``if_match`` only if it has that version."""
        return cast(T, self.caller.patch(self._member_path(key), body, if_match=if_match))

    def delete(self, key: object, *, if_match: str | None = None) -> T:
        """Delete one member; with ``if_match`` only if it has that version."""
        return cast(T, self.caller.delete(self._member_path(key), if_match=if_match))

    def _member_path(self, key: object) -> str:
        return f"{self.path}/{quote(str(key), safe='')}"
