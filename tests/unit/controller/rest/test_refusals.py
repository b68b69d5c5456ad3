"""Refusals in few rows, on a clock that the test turns and an audit in memory."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from controller.rest.middleware import refused_calls
from controller.rest.middleware.refused_calls import MAX_KINDS, MAX_STRANGERS, Refusals
from registry import Registry, RegistryUnavailableError
from registry.audit import AuditedCall


@dataclass
class AuditInMemory:
    """Keeps rows as the register center's audit does, or does not answer."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    answers: bool = True

    def finish(self, call: AuditedCall, status: int | None) -> int:
        if not self.answers:
            raise RegistryUnavailableError("database is locked")
        self.rows.append({"token": call.token, "address": call.address, "status": status})
        return len(self.rows) - 1

    def add_refusals(self, row: int, refusals: dict[str, int], *, last_ago_s: float) -> None:
        self.rows[row] |= {"refusals": dict(refusals), "last_ago_s": last_ago_s}


@dataclass
class World:
    audit: AuditInMemory = field(default_factory=AuditInMemory)
    now: float = 1000.0

    def __post_init__(self) -> None:
        self.refusals = Refusals(cast(Registry, self), clock=lambda: self.now)

    def refuse(self, *calls: AuditedCall, status: int | None = 404) -> None:
        async def all_of_them() -> None:
            for call in calls:
                await self.refusals.add(call, status)

        asyncio.run(all_of_them())


def a_call(
    token: str | None = None, address: str = "192.0.2.1", method: str = "POST", route: str = "/v1/x"
) -> AuditedCall:
    token_id = uuid.uuid5(uuid.NAMESPACE_OID, token) if token else None
    return AuditedCall(
        method=method, path="/v1/x", address=address, token=token, token_id=token_id, route=route
    )


def test_calls_of_one_caller_share_a_row_for_a_minute_and_then_there_is_another():
    world = World()

    world.refuse(*[a_call("busy")] * 1000)
    world.now += 59
    world.refuse(a_call("busy"), status=422)
    world.now += 2
    world.refuse(a_call("busy"))

    first, second = world.audit.rows
    assert first["refusals"] == {"404 POST /v1/x": 1000, "422 POST /v1/x": 1}
    assert first["last_ago_s"] == 2
    assert "refusals" not in second


def test_nothing_is_lost_when_the_process_ends():
    world = World()
    world.refuse(*[a_call("a")] * 3, *[a_call("b")] * 2, a_call("c"))

    world.refusals.flush()

    counts = {row["token"]: row.get("refusals") for row in world.audit.rows}
    assert counts == {"a": {"404 POST /v1/x": 3}, "b": {"404 POST /v1/x": 2}, "c": None}


def test_strangers_of_many_addresses_leave_few_rows_and_little_in_memory():
    world = World()

    world.refuse(*[a_call(address=f"2001:db8:{n:x}::1") for n in range(3000)], status=401)
    world.refusals.flush()

    assert len(world.audit.rows) == MAX_STRANGERS + 1
    assert world.audit.rows[-1]["refusals"] == {"401 POST /v1/x": 3000 - MAX_STRANGERS}


def test_the_addresses_of_one_network_are_one_caller():
    world = World()

    world.refuse(*[a_call(address=f"2001:db8::{n:x}") for n in range(1, 300)], status=401)

    assert len(world.audit.rows) == 1


def test_methods_that_callers_invent_are_one_kind_and_kinds_are_bounded():
    world = World()

    world.refuse(*[a_call("a", method=f"M{n}") for n in range(200)])
    world.refuse(*[a_call("b", route=f"/v1/{n}") for n in range(200)])
    world.refusals.flush()

    a, b = (row["refusals"] for row in world.audit.rows)
    assert a == {"404 OTHER /v1/x": 200}
    assert (len(b), sum(b.values())) == (MAX_KINDS + 1, 200)


def test_what_the_database_did_not_take_is_told_when_it_answers_again():
    world = World()
    world.audit.answers = False
    world.refuse(*[a_call("a")] * 5)
    world.audit.answers = True

    world.refusals.flush()

    (row,) = world.audit.rows
    assert row["refusals"] == {"404 POST /v1/x": 5}


def test_a_caller_who_goes_away_is_told_of_when_the_minute_is_over(monkeypatch: pytest.MonkeyPatch):
    world = World()
    turns = 0

    async def turn_the_clock(_seconds: float) -> None:
        nonlocal turns
        turns += 1
        world.now += 10

    async def main() -> None:
        await world.refusals.add(a_call("a"), 404)
        await world.refusals.add(a_call("a"), 404)
        sweeper = world.refusals._sweeper
        assert sweeper is not None
        await sweeper

    monkeypatch.setattr(refused_calls.asyncio, "sleep", turn_the_clock)  # type: ignore[attr-defined]
    asyncio.run(main())

    assert turns == 6
    assert world.audit.rows[0]["refusals"] == {"404 POST /v1/x": 2}
