"""One slot, decided as the control centre decides it, without waiting for its start."""

from __future__ import annotations

from datetime import UTC, datetime

from controller.rounds.interfaces import PolicyChoice, Slot
from controller.rounds.policy_process import PolicyProcess
from controller.rounds.round import run_round
from registry import Registry
from tests.register import take_lease

CHOICE = PolicyChoice(name="fuga", parameters={}, budget_units=100_000, decision_time_s=60)


def run_slot(
    registry: Registry, decider: PolicyProcess, number: int = 1, choice: PolicyChoice = CHOICE
) -> None:
    """Decide what waits, in a round of its own."""
    slot = Slot(start_at=datetime(2026, 1, 1, 0, number, tzinfo=UTC), length_s=60)
    run_round(slot, take_lease(registry), choice, store=registry.rounds, decider=decider)
