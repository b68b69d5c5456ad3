"""Tenants, VM types, resources, tokens, idempotency keys and the history."""

from __future__ import annotations

import hashlib
from uuid import uuid4

import pytest
from pydantic import TypeAdapter

from registry import (
    AnsweredBeforeError,
    DuplicateError,
    IdempotencyConflictError,
    InvalidError,
    NotFoundError,
    Registry,
)
from registry.audit import IdempotencyKey, IdempotentCall, parse_stored_record
from registry.db.schema import metadata
from registry.tenancy import Tenant
from tests.raw_sql import RawSql
from tests.register import ACTOR, a_cluster, add_host, add_request, add_tenant, add_vm_type

# ---- tenants ----------------------------------------------------------------


def test_a_tenants_name_is_its_own(register: Registry) -> None:
    add_tenant(register, "a")

    with pytest.raises(DuplicateError, match="tenant with name 'a'"):
        add_tenant(register, "a")


def test_a_tenant_is_weighed_anew_with_an_event(register: Registry) -> None:
    add_tenant(register, "a")

    assert register.tenants.update("a", weight=3, actor=ACTOR).weight == 3
    register.tenants.update("a", weight=3, actor=ACTOR)

    (event,) = register.events.list(kind="tenant_weighed")
    assert event.data == {"before": 1.0, "weight": 3}
    with pytest.raises(InvalidError, match="weight"):
        register.tenants.update("a", weight=0, actor=ACTOR)
    with pytest.raises(NotFoundError):
        register.tenants.update("b", weight=1, actor=ACTOR)


# ---- VM types and resources -------------------------------------------------


def test_a_vm_type_has_its_resources_in_the_order_of_the_axis(register: Registry) -> None:
    made = register.vm_types.add(
        "small", {"disk_gib": 15, "memory_mib": 3072, "vcpus": 1}, actor=ACTOR
    )

    assert list(made.resources) == ["vcpus", "memory_mib", "disk_gib"]
    assert made.revision == 1
    assert register.vm_types.get("small") == made
    assert register.vm_types.all() == register.vm_types.list().items == (made,)


def test_limits_of_a_vm_type_are_no_resources(register: Registry) -> None:
    resources, limits = {"vcpus": 1, "memory_mib": 512}, {"disk_iops": 500, "net_mbps": 100}

    made = register.vm_types.add("slow", resources, limits=limits, actor=ACTOR)

    assert (made.resources, made.limits) == (resources, limits)
    assert register.vm_types.get("slow") == made
    assert "disk_iops" not in {each.name for each in register.resources.all()}
    with pytest.raises(InvalidError, match="limit of this one"):
        register.resources.add("net_mbps", "Mbit/s", actor=ACTOR)


@pytest.mark.parametrize(
    ("limits", "what"),
    [
        ({"disk_iops": 9}, "limits.disk_iops"),
        ({"disk_mib_s": 0}, "limits.disk_mib_s"),
        ({"net_mbps": 200_001}, "limits.net_mbps"),
        ({"vcpus": 1}, "limits.vcpus"),
    ],
)
def test_a_limit_that_none_could_keep_is_refused(
    register: Registry, limits: dict[str, int], what: str
) -> None:
    with pytest.raises(InvalidError) as caught:
        register.vm_types.add("odd", {"vcpus": 1, "memory_mib": 1}, limits=limits, actor=ACTOR)

    assert caught.value.field == what


@pytest.mark.parametrize(
    ("resources", "what"),
    [
        ({}, "resources.vcpus"),
        ({"vcpus": 1}, "resources.memory_mib"),
        ({"vcpus": 0, "memory_mib": 1}, "resources.vcpus"),
        ({"vcpus": 1, "memory_mib": 1, "gpu": 1}, "resources.gpu"),
        ({"vcpus": 1, "memory_mib": 1, "disk_gib": -1}, "resources.disk_gib"),
        ({"vcpus": 2**63, "memory_mib": 1}, "resources.vcpus"),
    ],
)
def test_a_vm_type_that_no_domain_could_be_is_refused(
    register: Registry, resources: dict[str, int], what: str
) -> None:
    with pytest.raises(InvalidError) as caught:
        register.vm_types.add("odd", resources, actor=ACTOR)

    assert caught.value.field == what


def test_a_vm_type_is_not_added_twice(register: Registry) -> None:
    add_vm_type(register)

    with pytest.raises(DuplicateError, match="VM type"):
        add_vm_type(register)
    with pytest.raises(NotFoundError):
        register.vm_types.get("large")


def test_vm_types_are_paged_by_name(register: Registry) -> None:
    for name in ("c", "a", "b"):
        add_vm_type(register, name)

    page = register.vm_types.list(limit=2)

    assert [each.name for each in page.items] == ["a", "b"]
    assert [each.name for each in register.vm_types.list(cursor=page.next).items] == ["c"]


def test_a_resource_is_added_to_every_host(register: Registry) -> None:
    add_host(register)

    gpu = register.resources.add("gpu", "GPU", actor=ACTOR)

    assert (gpu.name, gpu.unit, gpu.position) == ("gpu", "GPU", 3)
    assert [each.resource for each in register.hosts.get("h1").inventories][-1] == "gpu"
    with pytest.raises(DuplicateError, match="resource"):
        register.resources.add("gpu", "GPU", actor=ACTOR)
    with pytest.raises(InvalidError, match="unit"):
        register.resources.add("fpga", "", actor=ACTOR)
    assert register.check() == []


# ---- tokens -----------------------------------------------------------------


def test_a_token_is_known_by_its_secret_which_is_stored_nowhere(
    register: Registry, raw: RawSql
) -> None:
    add_tenant(register, "a")
    token, secret = register.tokens.create("tenant", "a", "laptop", actor=ACTOR)

    assert register.tokens.authenticate(secret) == token
    assert (token.role, token.tenant) == ("tenant", "a")
    assert len(secret) >= 43
    dump = "".join(str(raw.rows(f"SELECT * FROM {table}")) for table in metadata.tables)
    assert secret not in dump
    assert hashlib.sha256(secret.encode()).hexdigest() in dump


@pytest.mark.parametrize("secret", ["", "fuga_", "x" * 10_000, "\udcff", "fuga_\x00"])
def test_what_is_no_secret_is_nobodys(register: Registry, secret: str) -> None:
    register.tokens.create("operator", None, "ops", actor=ACTOR)

    assert register.tokens.authenticate(secret) is None


def test_a_revoked_token_is_nobodys_and_frees_its_name(register: Registry) -> None:
    token, secret = register.tokens.create("operator", None, "ops", actor=ACTOR)
    with pytest.raises(DuplicateError, match="token"):
        register.tokens.create("operator", None, "ops", actor=ACTOR)

    revoked = register.tokens.revoke(token.id, actor=ACTOR)

    assert revoked.revoked_at is not None
    assert register.tokens.revoke(token.id, actor=ACTOR) == revoked
    assert register.tokens.authenticate(secret) is None
    register.tokens.create("operator", None, "ops", actor=ACTOR)
    assert len(register.tokens.list().items) == 2
    with pytest.raises(NotFoundError):
        register.tokens.revoke(uuid4(), actor=ACTOR)


def test_a_token_is_of_a_tenant_or_of_an_operator(register: Registry) -> None:
    add_tenant(register, "a")

    with pytest.raises(InvalidError, match="tenant"):
        register.tokens.create("tenant", None, "t", actor=ACTOR)
    with pytest.raises(InvalidError, match="tenant"):
        register.tokens.create("operator", "a", "t", actor=ACTOR)
    with pytest.raises(InvalidError, match="role"):
        register.tokens.create("root", None, "t", actor=ACTOR)  # type: ignore[arg-type]
    with pytest.raises(NotFoundError, match="nobody"):
        register.tokens.create("tenant", "nobody", "t", actor=ACTOR)


def test_tokens_are_paged(register: Registry) -> None:
    made = [register.tokens.create("operator", None, f"t{n}", actor=ACTOR)[0] for n in range(3)]

    page = register.tokens.list(limit=2)

    assert page.items == tuple(made[:2])
    assert register.tokens.list(cursor=page.next).items == tuple(made[2:])


# ---- idempotency keys -------------------------------------------------------


def add_tenant_once(register: Registry, name: str, fingerprint: str = "f", **key: str) -> Tenant:
    names = {"scope": "s", "key": "k"} | key
    once = IdempotentCall(IdempotencyKey(**names, fingerprint=fingerprint, status=201))
    return register.for_call(None, once=once).tenants.add(name, weight=1.0, actor=ACTOR)


def test_the_first_caller_works_and_the_others_get_its_record(register: Registry) -> None:
    first = add_tenant_once(register, "a")

    with pytest.raises(AnsweredBeforeError) as again:
        add_tenant_once(register, "a")

    assert again.value.status == 201
    assert parse_stored_record(TypeAdapter(Tenant), again.value.body) == first
    with pytest.raises(IdempotencyConflictError, match="another body"):
        add_tenant_once(register, "b", "g")
    assert add_tenant_once(register, "b", "g", scope="t").name == "b"


def test_a_call_that_came_to_nothing_may_be_tried_again(register: Registry) -> None:
    add_tenant(register, "a")
    with pytest.raises(DuplicateError):
        add_tenant_once(register, "a")

    assert add_tenant_once(register, "b", "other body").name == "b"


def test_a_store_that_keeps_nothing_does_not_do_its_work(register: Registry) -> None:
    """Its call could not be answered again, and so would do its work twice."""
    add_tenant(register, "a")
    once = IdempotentCall(IdempotencyKey(scope="s", key="k", fingerprint="f"))

    with pytest.raises(RuntimeError, match="nothing was kept"):
        register.for_call(None, once=once).quotas.set("a", {"vms": 1}, actor=ACTOR)

    assert register.quotas.get("a").limits == ()


def test_a_key_is_forgotten_after_a_day(register: Registry, raw: RawSql) -> None:
    add_tenant_once(register, "a")
    raw.run(f"UPDATE idempotency_keys SET first_used_at = {raw.before('now', '1441 minutes')}")

    assert add_tenant_once(register, "b", "another body").name == "b"


@pytest.mark.parametrize("key", ["", "x" * 256, "é", "a\nb"])
def test_what_is_no_key_is_refused(register: Registry, key: str) -> None:
    with pytest.raises(InvalidError, match="Idempotency-Key"):
        add_tenant_once(register, "a", key=key)


# ---- history ----------------------------------------------------------------


def test_a_reader_that_tails_the_history_sees_each_event_once_in_order(register: Registry) -> None:
    a_cluster(register)
    add_request(register)

    seen, after = [], 0
    while page := register.events.list(after=after, limit=2):
        seen += page
        after = page[-1].id

    assert [event.id for event in seen] == sorted({event.id for event in seen})
    assert seen == list(register.events.list(limit=500))
    assert seen[-1].kind == "request_created"
    assert {event.actor for event in seen} == {ACTOR, "monitor"}


def test_the_history_is_filtered_by_subject_tenant_and_kind(register: Registry) -> None:
    a_cluster(register)
    request = add_request(register)
    add_request(register, tenant="b")

    of_request = register.events.list(subject_id=str(request.id))
    of_tenant = register.events.list(tenant="b")

    assert [event.kind for event in of_request] == ["request_created"]
    assert [event.kind for event in of_tenant] == ["tenant_added", "request_created"]
    assert len(register.events.list(kind="request_created")) == 2
    with pytest.raises(InvalidError, match="limit"):
        register.events.list(limit=501)
    with pytest.raises(InvalidError, match="after"):
        register.events.list(after=2**63)


# ---- names that are words ---------------------------------------------------


@pytest.mark.parametrize("word", ["all", "any", "nobody", "none", "now", "never"])
def test_nothing_new_is_called_like_a_word_of_commands(register: Registry, word: str) -> None:
    a_cluster(register)

    for make in (
        lambda: add_tenant(register, word),
        lambda: add_host(register, word),
        lambda: add_vm_type(register, word),
        lambda: add_request(register, name=word),
        lambda: register.tokens.create("operator", None, word, actor=ACTOR),
        lambda: register.resources.add(word, "things", actor=ACTOR),
    ):
        with pytest.raises(InvalidError, match="commands and the API take this one as a word"):
            make()


def test_no_tenant_is_called_as_the_audit_calls_operators(register: Registry) -> None:
    with pytest.raises(InvalidError, match="as a word"):
        add_tenant(register, "operator")


def test_what_has_the_name_of_a_word_works_on_and_is_named(register: Registry, raw: RawSql) -> None:
    a_cluster(register)
    request = add_request(register)
    raw.run("UPDATE tenants SET name = 'all' WHERE name = 'b'")
    raw.run("UPDATE requests SET name = 'none'")

    assert register.reserved_names() == [("request", "none"), ("tenant or group", "all")]
    assert register.tenants.get("all").name == "all"
    register.requests.delete(request.id, actor=ACTOR)
