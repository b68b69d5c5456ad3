"""Every difference has one name and one answer."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import pytest

from registry.lifecycle import VmDesired, VmObserved
from registry.reconciliation import (
    DECIDED,
    Difference,
    LedgerAssignment,
    LedgerVm,
    Remedy,
    mark_difference,
    vm_difference,
    volume_difference,
)

LOOK = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
BEFORE, AFTER = LOOK - timedelta(seconds=1), LOOK + timedelta(seconds=1)
HERE, THERE = uuid4(), uuid4()
HOST, OTHER_HOST = uuid4(), uuid4()


def known_as(
    released_at: datetime | None, *, host_id: UUID = HOST, vm_lives: bool = True, **fields: Any
) -> LedgerAssignment:
    fields = {"placed_anew": False, **fields}
    return LedgerAssignment(released_at=released_at, host_id=host_id, vm_lives=vm_lives, **fields)


def test_every_difference_is_decided() -> None:
    assert set(DECIDED) == set(Difference)
    for decision in DECIDED.values():
        assert (decision.on_confirmation is not None) == (decision.remedy is Remedy.CONFIRM)


@pytest.mark.parametrize(
    ("mark", "known", "expected"),
    [
        (None, None, Difference.STRANGER),
        (HERE, None, None),
        (THERE, None, Difference.UNKNOWN_MARK),
        (THERE, known_as(None), Difference.WRONG_HOST),
        (THERE, known_as(BEFORE), Difference.LEFTOVER),
        (THERE, known_as(BEFORE, placed_anew=True), Difference.OLDER_GENERATION),
        (THERE, known_as(BEFORE, host_id=OTHER_HOST), Difference.WRONG_HOST),
        (THERE, known_as(BEFORE, host_id=OTHER_HOST, placed_anew=True), Difference.WRONG_HOST),
        (THERE, known_as(BEFORE, host_id=OTHER_HOST, vm_lives=False), Difference.LEFTOVER),
        (THERE, known_as(AFTER, host_id=OTHER_HOST), None),
        (THERE, known_as(LOOK), None),
        (THERE, known_as(AFTER, placed_anew=True), None),
    ],
)
def test_a_domain_is_what_its_mark_says(
    mark: UUID | None, known: LedgerAssignment | None, expected: Difference | None
) -> None:
    ledger = {} if known is None else {THERE: known}

    assert mark_difference(mark, {HERE}, ledger, LOOK, host_id=HOST) == expected


@pytest.mark.parametrize(
    ("known", "shared_pool", "expected"),
    [
        (known_as(None), None, Difference.DISK_ELSEWHERE),
        (known_as(None), "nfs", Difference.DISK_ELSEWHERE),
        (known_as(None, shared_pool="nfs"), "nfs", None),
        (known_as(BEFORE, placed_anew=True, disk_in_use=True), None, None),
        (known_as(BEFORE, placed_anew=True), None, Difference.OLDER_GENERATION),
        (known_as(BEFORE, host_id=OTHER_HOST), None, Difference.DISK_ELSEWHERE),
        (known_as(BEFORE, host_id=OTHER_HOST, vm_lives=False), None, Difference.LEFTOVER),
        (known_as(BEFORE, host_id=OTHER_HOST, shared_pool="nfs"), "nfs", Difference.LEFTOVER),
        (None, None, Difference.UNKNOWN_MARK),
    ],
)
def test_a_volume_of_a_vm_elsewhere_is_never_ours_to_remove(
    known: LedgerAssignment | None, shared_pool: str | None, expected: Difference | None
) -> None:
    """Two hosts may see one folder with or without the label that says so."""
    ledger = {} if known is None else {THERE: known}

    assert (
        volume_difference(THERE, {HERE}, ledger, LOOK, host_id=HOST, shared_pool=shared_pool)
        == expected
    )
    if expected == Difference.DISK_ELSEWHERE:
        assert DECIDED[expected].on_confirmation is None


RUNS, STOPPED, LOST = VmObserved.RUNNING, VmObserved.STOPPED, VmObserved.LOST


@pytest.mark.parametrize(
    ("desired", "observed", "state", "off_reason", "expected"),
    [
        ("running", RUNS, "running", None, None),
        ("stopped", STOPPED, "running", None, Difference.VM_RUNS),
        ("running", RUNS, None, None, Difference.VM_MISSING),
        ("stopped", STOPPED, None, None, Difference.VM_MISSING),
        ("running", RUNS, "paused", None, Difference.VM_PAUSED),
        ("running", STOPPED, "paused", None, None),
        ("stopped", RUNS, "stopped", "host", None),
        ("running", RUNS, "stopped", "host", Difference.VM_LOST_POWER),
        ("running", LOST, "stopped", "host", Difference.VM_LOST_POWER),
        ("running", STOPPED, "stopped", "host", Difference.VM_STOPPED),
        ("running", STOPPED, "stopped", "crash", Difference.VM_CRASHES),
        ("running", RUNS, "stopped", "guest", Difference.VM_STOPPED),
        ("running", RUNS, "stopped", "hand", Difference.VM_STOPPED),
        ("running", RUNS, "stopped", None, Difference.VM_STOPPED),
    ],
)
def test_a_vm_is_judged_by_what_its_tenant_wants_and_why_it_is_off(
    desired: str,
    observed: VmObserved,
    state: str | None,
    off_reason: str | None,
    expected: Difference | None,
) -> None:
    vm = LedgerVm(desired=VmDesired(desired), observed=observed, started_at=BEFORE)
    domain = None if state is None else SimpleNamespace(state=state, off_reason=off_reason)

    assert vm_difference(vm, domain, LOOK) == expected


@pytest.mark.parametrize(
    ("lived_s", "expected"), [(599, Difference.VM_CRASHES), (600, Difference.VM_CRASHED)]
)
def test_a_vm_that_crashes_soon_after_its_start_is_not_started_over_and_over(
    lived_s: int, expected: Difference
) -> None:
    started_at = LOOK - timedelta(seconds=lived_s)
    vm = LedgerVm(desired=VmDesired.RUNNING, observed=RUNS, started_at=started_at)

    assert vm_difference(vm, SimpleNamespace(state="stopped", off_reason="crash"), LOOK) == expected
