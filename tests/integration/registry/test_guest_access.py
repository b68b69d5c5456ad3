"""Keys and user-data on their way from a tenant to the build of its VMs."""

from __future__ import annotations

import hashlib

import pytest

from registry import DuplicateError, InvalidError, NotFoundError, Registry, RequestState
from tests.builders import a_public_key
from tests.raw_sql import RawSql
from tests.register import ACTOR, a_cluster, add_request, place, remove_vm

OWN, OTHERS, BROUGHT = a_public_key("own"), a_public_key("other's"), a_public_key("brought")


def access_of_a_build(registry: Registry, **fields):
    request = add_request(registry, **fields)
    [assignment] = place(registry, request, registry.hosts.get("h1")).assignment_ids
    build = registry.assignments.claim_build(assignment, "w1", 60)
    assert build is not None
    return build.access


def test_a_build_gets_the_tenants_own_keys_and_those_of_its_request(register: Registry):
    a_cluster(register)
    register.ssh_keys.add("laptop", OWN, tenant="a", actor=ACTOR)
    register.ssh_keys.add("laptop", OTHERS, tenant="b", actor=ACTOR)

    access = access_of_a_build(register, ssh_keys=(BROUGHT, OWN), user_data=b"#!/bin/sh\n\x00")

    assert access.ssh_keys == (OWN, BROUGHT)
    assert access.user_data == b"#!/bin/sh\n\x00"


def test_a_build_without_any_gets_none(register: Registry):
    a_cluster(register)

    access = access_of_a_build(register, user_data=b"")

    assert (access.ssh_keys, access.user_data) == ((), None)


def test_a_removed_key_opens_no_new_vm(register: Registry):
    a_cluster(register)
    key = register.ssh_keys.add("laptop", OWN, tenant="a", actor=ACTOR)

    register.ssh_keys.remove(key.id, actor=ACTOR)

    assert access_of_a_build(register).ssh_keys == ()
    assert register.ssh_keys.list().items == ()
    with pytest.raises(NotFoundError):
        register.ssh_keys.remove(key.id, actor=ACTOR)
    kinds = [event.kind for event in register.events.list(subject_id=str(key.id))]
    assert kinds == ["ssh_key_added", "ssh_key_removed"]


def test_a_key_has_one_name_of_a_tenant_whatever_its_comment(register: Registry):
    a_cluster(register)
    register.ssh_keys.add("laptop", OWN, tenant="a", actor=ACTOR)
    kind, blob, *_ = OWN.split()

    with pytest.raises(DuplicateError, match="SSH key laptop"):
        register.ssh_keys.add("desk", f"{kind} {blob} me@desk", tenant="a", actor=ACTOR)
    assert register.ssh_keys.add("laptop", OWN, tenant="b", actor=ACTOR).tenant == "b"


def test_a_name_is_a_tenants_own(register: Registry):
    a_cluster(register)
    register.ssh_keys.add("laptop", OWN, tenant="a", actor=ACTOR)

    with pytest.raises(DuplicateError):
        register.ssh_keys.add("laptop", BROUGHT, tenant="a", actor=ACTOR)
    assert [key.name for key in register.ssh_keys.list(tenant="a").items] == ["laptop"]
    assert register.ssh_keys.list(tenant="b").items == ()


def test_of_user_data_size_and_hash_are_told_and_stay_when_it_is_deleted(
    register: Registry, raw: RawSql
):
    [host] = a_cluster(register)
    secret = b"password: hunter2\n"
    request = add_request(register, user_data=secret, ssh_keys=(BROUGHT,))
    assert request.user_data is not None
    assert request.user_data.bytes == len(secret)
    assert request.user_data.sha256 == hashlib.sha256(secret).hexdigest()
    assert len(request.ssh_keys) == 1
    assert "hunter2" not in repr(request)
    [assignment] = place(register, request, host).assignment_ids
    register.assignments.claim_build(assignment, "w1", 60)

    register.requests.delete(request.id, actor=ACTOR)
    assert raw.value("SELECT count(*) FROM request_access WHERE user_data IS NOT NULL") == 1
    register.assignments.claim_removal(assignment, "w2", 60)
    raw.run("UPDATE assignments SET lease_until = created_at")
    remove_vm(register, assignment)

    over = register.requests.get(request.id)
    assert over.state == RequestState.RELEASED
    assert over.user_data == request.user_data
    assert raw.value("SELECT count(*) FROM request_access WHERE user_data IS NOT NULL") == 0


def test_too_much_user_data_is_refused_by_its_size_alone(register: Registry):
    a_cluster(register)

    with pytest.raises(InvalidError, match="65537 bytes") as raised:
        add_request(register, user_data=b"s" * 65_537)
    assert "sss" not in str(raised.value)
