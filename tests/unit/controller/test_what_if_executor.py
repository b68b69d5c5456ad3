"""What a what-if comes to when its child is late, is not started, or ends with the API."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import pytest

from controller.fork_server.children import Child, start_interpreter
from controller.fork_server.client import ForkServerError, ForkServerLateError
from controller.what_ifs import executor
from controller.what_ifs.executor import WhatIfBounds, WhatIfExecutor
from registry.admin import WhatIfEvent, WhatIfState
from tests.fakes import forked

LATE = ForkServerLateError("its fork server forks no child in time")
CANNOT = ForkServerError("its fork server was closed")


class Carried:
    """A what-if that waits for its children, each start of which comes to something."""

    def __init__(self, *starts: OSError | str) -> None:
        self.starts = list(starts)
        self.patience: list[float] = []
        self.said = 0  #: how often it was said that it is carried
        self.closes_at = self.cancelled_at = -1
        self.ended: list[tuple[WhatIfEvent, str | None]] = []
        registry: Any = SimpleNamespace(what_ifs=self, database_url="postgresql:///")
        self.what_ifs = WhatIfExecutor(registry, WhatIfBounds(), {}, self.start)

    def report_progress(self, _id: UUID, _carrier: UUID, _progress: float) -> WhatIfState:
        self.said += 1
        if self.said == self.closes_at:
            self.what_ifs.close()
        return WhatIfState.CANCELLED if self.said == self.cancelled_at else WhatIfState.RUNNING

    def end(
        self, _id: UUID, _carrier: UUID, event: WhatIfEvent, *, report: object, error: str | None
    ) -> None:
        assert report is None
        self.ended.append((event, error))

    def start(self, _module: str, deadline: float) -> Child:
        self.patience.append(deadline - time.monotonic())
        outcome = self.starts.pop(0)
        if isinstance(outcome, OSError):
            raise outcome
        child = start_interpreter(outcome, deadline)
        while child.poll() is None:
            time.sleep(0.01)
        return child

    def run(self) -> Carried:
        self.what_ifs._carry_out_what_if(uuid4(), {"hours": 1})
        return self


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "_REPORT_EVERY_S", 0.0)
    monkeypatch.setattr(executor, "_POLL_EVERY_S", 0.01)


def test_a_what_if_whose_child_is_late_is_carried_still() -> None:
    carried = Carried(LATE, LATE, CANNOT).run()

    assert carried.ended == [(WhatIfEvent.FAILED, f"its process was not started: {CANNOT}")]
    assert max(carried.patience) < 5
    assert carried.said == 1 + 3


def test_a_what_if_whose_child_is_late_fails_at_its_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(executor, "_TIMES_LONGER", 0)

    assert Carried(LATE, LATE).run().ended == [
        (WhatIfEvent.FAILED, f"its process was not started: {LATE}")
    ]


def test_a_what_if_is_cancelled_while_its_child_is_late() -> None:
    carried = Carried(LATE, LATE, LATE)
    carried.cancelled_at = 3

    assert carried.run().ended == []
    assert len(carried.patience) == 2


@pytest.mark.parametrize("start", [LATE, CANNOT, forked.__name__])
def test_a_what_if_whose_child_ends_with_the_api_is_interrupted(start: OSError | str) -> None:
    carried = Carried(start)
    carried.closes_at = 1 if isinstance(start, OSError) else 2

    ((event, error),) = carried.run().ended

    assert event is WhatIfEvent.INTERRUPTED
    assert error == "the API process that carried it was stopped"
