"""What workers do with volumes, for tests that need no host."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from registry import Registry, VolumeEvent, VolumeState
from registry.volumes import VolumeStep

#: The event of a step that went well, by the state that requires the step.
_DONE: Final = {
    VolumeState.CREATING: VolumeEvent.CREATED,
    VolumeState.ATTACHING: VolumeEvent.ATTACHED,
    VolumeState.DETACHING: VolumeEvent.DETACHED,
    VolumeState.WITHDRAWING: VolumeEvent.WITHDRAWN,
    VolumeState.REMOVING: VolumeEvent.ABSENT,
}


def claim_step(register: Registry, volume: UUID | str) -> VolumeStep:
    """Claim the next step of a volume's change, as a worker does."""
    step = register.volume_steps.claim(UUID(str(volume)), "w1", 60)
    assert step is not None, f"no step of volume {volume} is due"
    return step


def carry_out(register: Registry, volume: UUID | str) -> VolumeState:
    """Carry out a volume's change to its end; return the state after it."""
    step = claim_step(register, volume)
    state = step.state
    while state in _DONE:
        state = register.volume_steps.advance(step.claim, _DONE[state])
    return state
