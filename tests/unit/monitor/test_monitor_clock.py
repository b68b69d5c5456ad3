"""The register center's clock is asked once for many looks, and never told to be ahead."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from monitor.clock import EstimatedClock

START = datetime(2026, 1, 1, tzinfo=UTC)


class World:
    """A database whose answer is under way for a while."""

    def __init__(self, there_s: float = 0.2, back_s: float = 0.3) -> None:
        self.there_s, self.back_s = there_s, back_s
        self.at_s, self.asked, self.away = 100.0, 0, False

    def ask(self) -> datetime:
        if self.away:
            raise ConnectionError("the database is away")
        self.asked += 1
        self.at_s += self.there_s
        answer = self.truth
        self.at_s += self.back_s
        return answer

    @property
    def truth(self) -> datetime:
        return START + timedelta(seconds=self.at_s)


def test_it_is_behind_by_what_asking_took_at_most_and_never_ahead() -> None:
    world = World()
    clock = EstimatedClock(world.ask, lambda: world.at_s)

    for pause_s in (0.0, 0.4, 0.5, 0.9, 30.0, 0.1):
        world.at_s += pause_s
        shown = clock.now()
        assert (
            timedelta(0) <= world.truth - shown <= timedelta(seconds=world.there_s + world.back_s)
        )


def test_it_asks_once_for_many_looks() -> None:
    world = World(0.0, 0.0)
    clock = EstimatedClock(world.ask, lambda: world.at_s)

    for _ in range(100):
        clock.now()
        world.at_s += 0.001

    assert world.asked == 1


def test_a_database_that_is_away_is_noticed_once_the_last_answer_is_old() -> None:
    world = World()
    clock = EstimatedClock(world.ask, lambda: world.at_s)
    clock.now()

    world.away = True
    world.at_s += 2

    with pytest.raises(ConnectionError):
        clock.now()
