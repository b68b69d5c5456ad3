"""A leader that slept in the middle of a round, past its lease, writes nothing when it wakes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from controller.control_center.leadership import Leadership
from controller.control_center.metrics import SlotMetrics
from controller.control_center.policy_child import answer_request
from controller.control_center.slot_loop import SlotLoopRunner
from controller.rounds.interfaces import PolicyChoice, Slot
from controller.rounds.policy_process import Ideal, PolicyAnswer, PolicyFailure
from registry import Registry
from registry.rounds import CONTROL_LEASE
from service import ProcessMetrics
from tests.raw_sql import RawSql
from tests.register import a_cluster, add_request

CHOICE = PolicyChoice(name="fuga", parameters={}, budget_units=10_000, decision_time_s=600)


class Sleeper:
    """Decides here; what happens while it is asleep happens before it answers."""

    def __init__(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        self._meanwhile = meanwhile

    def decide(self, data: bytes, *, policy: str, deadline_s: float) -> PolicyAnswer:
        decision = answer_request("decide", data)
        assert not isinstance(decision, PolicyFailure), decision
        self._meanwhile()
        return decision

    def ideal(self, data: bytes, *, resource: int, deadline_s: float) -> Ideal:
        ideal = answer_request("ideal", (data, resource))
        assert isinstance(ideal, Ideal)
        return ideal


class Centre:
    """A control centre whose slots the test begins."""

    def __init__(self, register: Registry, holder: str, decider: Sleeper) -> None:
        self.metrics = ProcessMetrics("control")
        self.leadership = Leadership(register, holder, 600)
        self._loop = SlotLoopRunner(
            register,
            self.leadership,
            decider,
            CHOICE,
            slot_length_s=60,
            on_committed=lambda: None,
            metrics=SlotMetrics(self.metrics),
        )

    def slot(self, minute: int) -> None:
        lease = self.leadership.take()
        assert lease is not None
        start_at = datetime(2026, 1, 1, 0, minute, tzinfo=UTC)
        self._loop.run_slot(Slot(start_at=start_at, length_s=60), lease)

    def ended(self, outcome: str) -> bool:
        return f'fuga_slots_total{{outcome="{outcome}"}} 1.0' in self.metrics.text().decode()


def test_a_leader_that_slept_past_its_lease_writes_nothing_when_it_wakes(
    register: Registry, raw: RawSql
) -> None:
    a_cluster(register)
    add_request(register, 2)
    second = Centre(register, "cc-2", Sleeper())

    def the_lease_runs_out_and_another_leads() -> None:
        over = raw.before("now", "1 seconds")
        raw.run(f"UPDATE leases SET expires_at = {over} WHERE name = ?", CONTROL_LEASE)
        second.slot(2)

    first = Centre(register, "cc-1", Sleeper(the_lease_runs_out_and_another_leads))

    first.slot(1)

    assert first.ended("lease_lost")
    assert second.ended("decided")
    assert first.leadership.lease is None
    rounds = raw.rows("SELECT holder, epoch, placed FROM rounds")
    assert rounds == [{"holder": "cc-2", "epoch": 2, "placed": 2}]
    assert raw.value("SELECT count(*) FROM assignments") == 2
    assert first.leadership.take() is None
    assert register.check() == []
