"""Tenants are told what is theirs."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import BaseModel

from controller.host_aliases import HostNames, Viewer
from controller.rest.redaction import (
    redact_event,
    redact_request,
    redact_round,
    redact_round_detail,
    redact_vm,
)
from controller.rest.schemas.operations import RoundDetail, RoundSummary
from registry import RequestState, VmDesired, VmObserved
from registry.audit import Event
from registry.hosts import HostIdentity
from registry.requests import Request, Vm, WaitingStatus


class OneHost:
    """A register center with one host, h1."""

    def secret(self) -> bytes:
        return b"secret"

    def change_mark(self) -> int:
        return 1

    def all(self) -> list[HostIdentity]:
        uri = "qemu+tls://machine-7.example.org/system"
        return [HostIdentity(name="h1", uri=uri, hostname="machine-7", retired=False)]


NAMES = HostNames(OneHost)
OPERATOR = Viewer(None, NAMES)
TENANT = Viewer("a", NAMES)
ID = uuid.UUID(int=1)
THEN = datetime(2026, 1, 1, tzinfo=UTC)
FAILED = "host h1 does not answer at qemu+tls://10.0.0.7/system?no_verify=1: timed out"


def a_vm(last_error: str | None) -> Vm:
    return Vm(
        id=ID,
        name="web-1",
        request_id=ID,
        tenant="a",
        vm_type="small",
        host="h1",
        desired=VmDesired.RUNNING,
        observed=VmObserved.ABSENT,
        assignment_id=None,
        assignment_state=None,
        round=None,
        generation=1,
        last_error=last_error,
        created_at=THEN,
        deleted_at=None,
    )


def a_request(waiting: WaitingStatus | None) -> Request:
    return Request(
        id=ID,
        name="web",
        tenant="a",
        vm_type="small",
        count=1,
        min_count=1,
        requires=(),
        hosts=None,
        state=RequestState.PENDING,
        waiting=waiting,
        vms_wanted=1,
        vms_placed=0,
        vms_running=0,
        created_at=THEN,
        updated_at=THEN,
    )


def test_a_tenant_is_told_what_failed_but_not_where_the_host_listens():
    shown = redact_vm(a_vm(FAILED), TENANT).last_error

    assert shown == f"host {NAMES.alias('a', 'h1')} does not answer at (its URI): timed out"
    assert redact_vm(a_vm(FAILED), OPERATOR).last_error == FAILED
    assert redact_vm(a_vm(None), TENANT).last_error is None


def test_the_same_holds_for_events():
    event = Event(
        id=1,
        at=THEN,
        actor="worker",
        kind="assignment_state",
        subject_type="assignment",
        subject_id="x",
        tenant="a",
        from_state=None,
        to_state=None,
        event=None,
        reason=FAILED,
        data={},
    )

    assert "10.0.0.7" not in str(redact_event(event, TENANT))
    assert redact_event(event, TENANT).actor == "fuga"
    assert redact_event(event, OPERATOR) == event


def test_only_operators_are_told_which_host_came_nearest_or_is_held_back():
    shortage = {"resource": "vcpus", "hosts_short": 1, "hosts": 1, "missing": 2}
    detail = {
        "slot_start_at": "x",
        "shortages": [{**shortage, "nearest_host": "h1"}],
        "holding": [{"host": "h1"}],
    }
    request = a_request(WaitingStatus(count=1, reason="no_room", detail=detail))

    shown = redact_request(request, TENANT)

    assert shown.waiting is not None
    assert shown.waiting.detail["shortages"] == [{**shortage, "nearest_host": None}]
    assert shown.waiting.detail["holding"] == [{"host": None}]
    assert redact_request(request, OPERATOR) == request
    assert redact_request(a_request(None), TENANT) == a_request(None)


@pytest.mark.parametrize(
    ("shape", "told"), [(RoundSummary, redact_round), (RoundDetail, redact_round_detail)]
)
def test_nothing_of_a_round_that_is_for_operators_reaches_a_tenant(
    shape: type[BaseModel], told: Callable[[Any, Viewer], BaseModel]
) -> None:
    for_operators = {
        name
        for name, field in shape.model_fields.items()
        if "operators only" in (field.description or "").lower()
    }
    of_others: dict[str, Any] = {each: ["of others"] for each in shape.model_fields}
    of_others |= {"shares": [{"tenant": "b", "dominant_share": 0.5}], "fallback_reason": None}
    round_ = shape.model_construct(**of_others)

    shown = told(round_, TENANT)

    assert {"placed", "timings", "prices"} <= for_operators
    assert {name for name in (*for_operators, "shares") if getattr(shown, name)} == set()
