"""Calls are accepted together, and alone where that is not possible."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest

from controller.rest.routers.requests import accept_request, request_batches
from registry import Registry, RegistryUnavailableError
from registry.requests import CreateRequestCommand, RequestSpec, check_spec


class Requests:
    """Takes calls for fewer than three VMs together, unless it is away."""

    requests: Any

    def __init__(self, *, away: bool = False) -> None:
        self.requests = self
        self.away = away
        self.together: list[int] = []
        self.alone: list[int] = []

    def accept_batch(self, commands: Sequence[CreateRequestCommand]) -> list[str | None]:
        if self.away:
            raise RegistryUnavailableError("gone")
        counts = [asking.spec.count for asking in commands]
        self.together += counts
        return [f"together {count}" if count < 3 else None for count in counts]

    def accept(self, asking: CreateRequestCommand) -> str:
        self.alone.append(asking.spec.count)
        return f"alone {asking.spec.count}"


def asking(count: int, **asked: Any) -> CreateRequestCommand:
    return CreateRequestCommand(
        spec=check_spec(RequestSpec(tenant="a", vm_type="small", count=count, **asked)),
        actor="tenant:a",
    )


def accepted(requests: Requests, *commands: CreateRequestCommand) -> list[Any]:
    async def accept_all() -> list[Any]:
        registry = cast(Registry, requests)
        gathering = request_batches(registry)
        each = (accept_request(asking, gathering, registry) for asking in commands)
        return await asyncio.gather(*each, return_exceptions=True)

    return asyncio.run(accept_all())


def test_what_is_left_out_is_accepted_alone():
    requests = Requests()

    assert accepted(requests, asking(1), asking(3), asking(2)) == [
        "together 1",
        "alone 3",
        "together 2",
    ]
    assert requests.alone == [3]


@pytest.mark.parametrize(
    "asked", [{"count": 33}, {"count": 1, "hosts": ("h1",)}, {"count": 1, "network": "lan"}]
)
def test_what_needs_more_than_the_others_is_alone_from_the_start(asked: dict[str, Any]):
    requests = Requests()

    accepted(requests, asking(**asked))

    assert requests.together == []
    assert requests.alone == [asked["count"]]


def test_a_database_that_is_away_is_told_to_all_and_not_asked_again():
    requests = Requests(away=True)

    answers = accepted(requests, asking(1), asking(2))

    assert all(isinstance(answer, RegistryUnavailableError) for answer in answers)
    assert requests.alone == []
