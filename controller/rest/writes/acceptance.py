"""How calls that ask for VMs are accepted: those that come at the same time together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from starlette.concurrency import run_in_threadpool

from controller.rest.writes.gathering import Gathering
from registry import Registry, RegistryError
from registry.requests import Asking, Request, goes_together

#: In one transaction: others who ask for the same tenants wait for it.
MOST_TOGETHER: Final = 64


class Acceptance:
    """Accepts requests in few transactions."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._gathering: Gathering[Asking, Request | RegistryError | None] = Gathering(
            self._together, most=MOST_TOGETHER
        )

    async def accept(self, asking: Asking) -> Request:
        """Do what `Requests.accept` does, together with others where that makes no difference."""
        if goes_together(asking):
            made = await self._gathering.result(asking)
            if isinstance(made, RegistryError):
                raise made
            if made is not None:
                return made
        return await run_in_threadpool(self._registry.requests.accept, asking)

    def _together(self, askings: Sequence[Asking]) -> Sequence[Request | RegistryError | None]:
        return self._registry.requests.accept_together(askings)
