"""Who leads has hosts fenced that are down, and goes on doing so whatever goes wrong once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from controller.control_center.failures import FailedHosts
from registry import RegistryUnavailableError, StaleEpochError
from registry.hosts import FailurePolicy
from registry.rounds import Lease

LEASE = Lease(name="control", holder="cc-1", epoch=3, expires_at=datetime(2026, 1, 1, tzinfo=UTC))


class Fencing:
    """Remembers how it was asked; ``answers`` are given, or raised, in turn."""

    def __init__(self, *answers: tuple[str, ...] | Exception) -> None:
        self.asked: list[tuple[Lease, FailurePolicy]] = []
        self._answers = list(answers)

    def request_for_failed_hosts(
        self, lease: Lease, *, by_default: FailurePolicy
    ) -> tuple[str, ...]:
        self.asked.append((lease, by_default))
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


class Rounds(threading.Event):
    """Not set until it was waited for so often."""

    def __init__(self, rounds: int) -> None:
        super().__init__()
        self._left = rounds

    def wait(self, timeout: float | None = None) -> bool:
        self._left -= 1
        return self._left < 0


def failed_hosts(
    fencing: Fencing,
    lease: Callable[[], Lease | None] = lambda: LEASE,
    *,
    by_default: FailurePolicy = FailurePolicy.WAIT,
) -> FailedHosts:
    registry: Any = SimpleNamespace(fencing=fencing)
    return FailedHosts(registry, lease, by_default=by_default, interval_s=1)


def test_who_leads_asks_with_its_lease_and_the_sites_policy() -> None:
    fencing = Fencing(("h1", "h2"))

    assert failed_hosts(fencing, by_default=FailurePolicy.REPLACE).request_fencing() == ("h1", "h2")

    assert fencing.asked == [(LEASE, FailurePolicy.REPLACE)]


def test_who_follows_asks_for_nothing() -> None:
    fencing = Fencing()

    assert failed_hosts(fencing, lambda: None).request_fencing() == ()

    assert fencing.asked == []


def test_who_leads_no_more_has_asked_for_nothing() -> None:
    stale = StaleEpochError("cc-1", 3, "epoch 4 is cc-2's")

    assert failed_hosts(Fencing(stale)).request_fencing() == ()


def test_it_goes_on_when_the_database_is_away_for_a_moment() -> None:
    fencing = Fencing(RegistryUnavailableError("no answer"), ConnectionError("reset"), ("h1",))

    failed_hosts(fencing).run(Rounds(3))

    assert len(fencing.asked) == 3
