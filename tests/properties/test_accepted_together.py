"""Calls accepted together come to what they come to one at a time.

The order that counts is: those that were accepted together, as they came, and then those
that were left out. One at a time in that order, on tenants of their own, is the oracle.
"""

from __future__ import annotations

import base64
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from pydantic import TypeAdapter

from registry import AnsweredBeforeError, QuotaExceededError, QuotaExcess, Registry, RegistryError
from registry.audit import AuditedCall, IdempotencyKey, parse_stored_record
from registry.requests import (
    CreateRequestCommand,
    MembershipRule,
    Request,
    RequestSpec,
    Rules,
    check_spec,
)
from tests.raw_sql import RawSql
from tests.register import ACTOR, add_group, add_tenant, add_vm_type

TENANTS = ("free", "few", "waits", "below")
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI" + base64.b64encode(bytes(33)).decode()[:43]
#: Of every table that an accepted request may write, what does not tell when or by which id.
WRITTEN = {
    "requests": "SELECT r.name, r.count, r.min_count, r.requires, r.labels, r.hostname, r.zone,"
    " r.state, r.expires_at - r.created_at IS NULL AS endless, t.name AS tenant, y.name AS vm_type"
    " FROM requests r JOIN tenants t ON t.id = r.tenant_id JOIN vm_types y ON y.id = r.vm_type_id"
    " ORDER BY r.id",
    "vms": "SELECT v.name, v.desired, v.observed, v.labels, v.hostname, t.name AS tenant,"
    " i.network_id, i.mac IS NULL AS unknown FROM vms v JOIN tenants t ON t.id = v.tenant_id"
    " LEFT JOIN interfaces i ON i.vm_id = v.id ORDER BY v.request_id, v.id",
    "access": "SELECT t.name AS tenant, a.ssh_keys, a.user_data, a.user_data_bytes,"
    " a.user_data_sha256 FROM request_access a JOIN requests r ON r.id = a.request_id"
    " JOIN tenants t ON t.id = r.tenant_id ORDER BY r.id",
    "events": "SELECT actor, kind, subject_type, tenant, from_state, to_state, event, reason, data"
    " FROM events WHERE kind = 'request_created' ORDER BY id",
    "keys": "SELECT scope, key, fingerprint, status, body IS NULL AS empty FROM idempotency_keys"
    " ORDER BY scope, key",
    "audit": "SELECT request_id, token, tenant, method, path, status FROM audit ORDER BY id",
}


def a_world(registry: Registry, name: str) -> None:
    """Make the tenants of one of two worlds that are alike but for their names."""
    add_group(registry, f"{name}-group")
    for tenant in TENANTS:
        parent = {"parent": f"{name}-group"} if tenant == "below" else {}
        add_tenant(registry, f"{name}-{tenant}", **parent)
    registry.quotas.set(f"{name}-few", {"vms": 4}, actor=ACTOR)
    registry.quotas.set(f"{name}-group", {"vcpus": 5, "vms": 9}, actor=ACTOR)
    registry.quotas.set(f"{name}-waits", {"vms": 1}, over_quota="wait", actor=ACTOR)


def a_call(draw: random.Random, number: int) -> dict[str, Any]:
    """Return what a call asks for, of all that may be asked for and refused."""
    tenant = draw.choice((*TENANTS, *TENANTS, "free", "few", "below", "nobody", "group"))
    key = draw.choice((None, None, "k1", "k2", "k3", f"own-{number}"))
    return {
        "number": number,
        "tenant": tenant,
        "key": key,
        "fingerprint": draw.choice(("same", "same", "same", "other")),
        "audited": draw.random() < 0.7,
        "asked": {
            "vm_type": draw.choice(("small",) * 8 + ("large", "large", "none", "\x00")),
            "count": draw.choice((1, 1, 1, 1, 2, 2, 3, 40)),
            "name": draw.choice((None, None, None, "web", "web-1", "db")),
            "labels": draw.choice(({}, {"app": "shop"})),
            "requires": draw.choice(((), ("ssd",))),
            "ttl_s": draw.choice((None, 60)),
            "hostname": draw.choice((None, "guest")),
            "ssh_keys": draw.choice(((), (), (KEY,))),
            "user_data": draw.choice((None, None, b"#cloud-config")),
            "image": draw.choice((None,) * 9 + ("missing",)),
            "network": draw.choice((None,) * 9 + ("missing",)),
            "rules": draw.choice(
                (Rules(),) * 6
                + (Rules(zone="z1"), Rules(anti_affinity=MembershipRule(group="apart", soft=False)))
            ),
        },
    }


def an_asking(call: dict[str, Any], world: str) -> CreateRequestCommand:
    """Return a call as it comes to the register center."""
    tenant = f"{world}-{call['tenant']}"
    audited_call = None
    if call["audited"]:
        audited_call = AuditedCall(
            method="POST",
            path="/v1/requests",
            address="here",
            request_id=f"{world}-{call['number']}",
            token=tenant,
            tenant=tenant,
        )
    key = None
    if call["key"] is not None:
        key = IdempotencyKey(scope=tenant, key=call["key"], fingerprint=call["fingerprint"])
    return CreateRequestCommand(
        spec=check_spec(RequestSpec(tenant=tenant, **call["asked"])),
        actor=f"tenant:{tenant}",
        idempotency=key,
        call=audited_call,
    )


def alone(registry: Registry, asking: CreateRequestCommand) -> Request | str:
    """Accept a call by itself; return what came of it."""
    try:
        return registry.requests.accept(asking)
    except AnsweredBeforeError as before:
        found = parse_stored_record(TypeAdapter(Request), before.body)
        assert found is not None
        return f"answered before: {before.status} {found.tenant} {found.count}"
    except RegistryError as error:
        return str(said(error))


def said(outcome: Request | RegistryError | None) -> Request | str | None:
    """Return what came of a call, a refusal in its words."""
    if isinstance(outcome, RegistryError):
        return f"{type(outcome).__name__}: {outcome}"
    return outcome


def told(outcomes: Sequence[Request | str], world: str) -> list[Any]:
    """Return what came of some calls, without ids, times and the name of their world."""
    ids: dict[UUID, int] = {}
    found: list[Any] = []
    for each in outcomes:
        if isinstance(each, str):
            found.append(each.replace(world, "world"))
            continue
        at = ids.setdefault(each.id, len(ids))
        given = each.name if not each.name.startswith("req-") else "req"
        then = each.created_at
        ends = None if each.expires_at is None else (each.expires_at - then).total_seconds()
        plain = replace(each, id=UUID(int=at), name=given, updated_at=then, expires_at=None)
        shown = repr(plain).replace(repr(then), "then").replace(world, "world")
        found.append((shown, ends))
    return found


def written(raw: RawSql, world: str) -> dict[str, list[Any]]:
    """Return what is in the tables of one world, without ids, times and its name."""
    found = {}
    for table, query in WRITTEN.items():
        rows = [_plain(row) for row in raw.rows(query)]
        found[table] = [row.replace(world, "world") for row in rows if world in row]
    return found


def _plain(row: dict[str, Any]) -> str:
    parts = []
    for name, value in row.items():
        text = str(bytes(value)) if isinstance(value, memoryview | bytes) else str(value)
        # Names that we gave are made of ids.
        parts.append(f"{name}={'req' if text.startswith('req-') else text}")
    text = " ".join(parts)
    at = text.find("req-")
    return text if at < 0 else text[:at] + "req" + text[at + len("req-0123456789") :]


@pytest.mark.parametrize("seed", range(1, 5))
def test_calls_accepted_together_come_to_the_same_as_one_at_a_time(
    register: Registry, raw: RawSql, seed: int
):
    draw = random.Random(seed)
    add_vm_type(register, "small")
    add_vm_type(register, "large", vcpus=4)
    for world in ("grouped", "single"):
        a_world(register, world)
    number = 0
    together = 0

    for size in (1, 12, 17):
        calls = [a_call(draw, number + each) for each in range(size)]
        number += size
        commands = [an_asking(call, "grouped") for call in calls]
        made: list[Request | str | None] = [
            said(each) for each in register.requests.accept_batch(commands)
        ]
        in_order = sorted(range(size), key=lambda at: made[at] is None)
        together += sum(isinstance(each, Request) for each in made)
        for at in in_order:
            if made[at] is None:
                made[at] = alone(register, commands[at])
        oracle: dict[int, Request | str] = {
            at: alone(register, an_asking(calls[at], "single")) for at in in_order
        }

        assert told([made[at] or "" for at in in_order], "grouped") == told(
            [oracle[at] for at in in_order], "single"
        )

    assert together > 5
    assert written(raw, "grouped") == written(raw, "single")
    assert register.check() == []


def test_what_stands_in_nobodys_way_is_accepted_together(register: Registry):
    add_vm_type(register, "small")
    a_world(register, "w")
    calls: list[dict[str, Any]] = [
        {"tenant": tenant, "key": key, "asked": {"name": name, "user_data": data}}
        for tenant in ("free", "few", "waits", "below")
        for key, name, data in ((None, None, None), ("k1", "web", None), ("k2", None, b"data"))
    ]
    for number, call in enumerate(calls):
        call |= {"number": number, "fingerprint": "same", "audited": True}
        call["asked"] |= {"vm_type": "small", "count": 1}

    commands = [an_asking(call, "w") for call in calls]
    made = register.requests.accept_batch(commands)

    ids = [each.id for each in made if isinstance(each, Request)]
    assert len(ids) == len(commands)
    assert ids == sorted(ids)
    assert all(asking.call is not None and asking.call.row is not None for asking in commands)
    for asking, request in zip(commands, made, strict=True):
        assert isinstance(request, Request)
        assert register.requests.get(request.id) == request
        if asking.idempotency is not None:
            with pytest.raises(AnsweredBeforeError):
                register.requests.accept(asking)


def test_of_two_that_together_exceed_a_quota_the_second_is_refused(register: Registry):
    add_vm_type(register, "small")
    a_world(register, "w")
    call = {"number": 0, "tenant": "few", "key": None, "audited": False}
    commands = [
        an_asking({**call, "asked": {"vm_type": "small", "count": count}}, "w")
        for count in (3, 2, 1)
    ]

    made = register.requests.accept_batch(commands)

    first, second, third = made
    assert (isinstance(first, Request), isinstance(third, Request)) == (True, True)
    excess = QuotaExcess(tenant="w-few", resource="vms", limit=4, used=3, requested=2)
    assert str(second) == str(QuotaExceededError("w-few", [excess]))
    assert "vms" in str(alone(register, commands[1]))
    assert register.quotas.get("w-few").limits[0].requested == 4


def test_one_key_twice_makes_one_request(register: Registry, raw: RawSql):
    add_vm_type(register, "small")
    a_world(register, "w")
    call = {"number": 0, "tenant": "free", "key": "k", "fingerprint": "f"}
    call |= {"audited": False, "asked": {"vm_type": "small", "count": 1}}
    commands = [an_asking(call, "w") for _ in range(3)]

    made = register.requests.accept_batch(commands)

    assert [each is None for each in made] == [False, True, True]
    assert alone(register, commands[2]) == "answered before: 201 w-free 1"
    assert raw.value("SELECT count(*) FROM requests") == 1


def test_a_group_that_is_refused_whole_leaves_nothing_behind(register: Registry, raw: RawSql):
    add_vm_type(register, "small")
    a_world(register, "w")
    call = {"number": 0, "tenant": "free", "fingerprint": "f", "audited": True}
    commands = [
        an_asking({**call, "key": key, "asked": {"vm_type": "small", "count": 1}}, "w")
        for key in ("k1", "k2")
    ]
    raw.run("CREATE UNIQUE INDEX one_a_tenant ON requests (tenant_id)")

    made = register.requests.accept_batch(commands)

    assert made == [None, None]
    assert raw.value("SELECT count(*) FROM idempotency_keys") == 0
    assert raw.value("SELECT count(*) FROM audit") == 0
    assert isinstance(alone(register, commands[0]), Request)
    assert str(alone(register, commands[1])).startswith("DuplicateError")


@pytest.mark.parametrize(
    "register_url", [pytest.param("postgresql", marks=pytest.mark.postgresql)], indirect=True
)
def test_a_tenant_that_somebody_holds_holds_up_only_its_own(register: Registry, raw: RawSql):
    add_vm_type(register, "small")
    a_world(register, "w")
    call = {"number": 0, "key": "k", "fingerprint": "f", "audited": False}
    held, free = (
        an_asking({**call, "tenant": tenant, "asked": {"vm_type": "small", "count": 1}}, "w")
        for tenant in ("few", "free")
    )
    raw.run("BEGIN")
    raw.rows("SELECT id FROM tenants WHERE name = 'w-few' FOR UPDATE")

    together = register.requests.accept_batch([held, free])
    by_itself = alone(register, free)
    raw.run("ROLLBACK")

    assert together == [None, None]
    assert isinstance(by_itself, Request)
    assert isinstance(alone(register, held), Request)
