"""Quotas in the register center: what is asked, what is held, and two who ask at once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from registry import InvalidError, NotFoundError, QuotaExceededError, Registry
from registry.rounds import Placement
from registry.tenancy import MoveTo
from tests.integration.ledger.test_races import held_before_its_end, outcome
from tests.register import (
    ACTOR,
    a_cluster,
    a_commit,
    add_group,
    add_request,
    add_tenant,
    add_vm_type,
    place,
    run_vm,
    take_lease,
)


@pytest.fixture
def other(register_url: str) -> Iterator[Registry]:
    """The register center as another process has it open."""
    found = Registry.connect(register_url)
    yield found
    found.close()


def limit(register: Registry, tenant: str, **limits: int | None) -> None:
    register.quotas.set(tenant, limits, actor=ACTOR)


def uses(register: Registry, tenant: str) -> list[tuple[str, str, int, int, int]]:
    return [
        (each.tenant, each.resource, each.limit, each.requested, each.held)
        for each in register.quotas.get(tenant).limits
    ]


def in_groups(register: Registry) -> None:
    """Put tenant a into physics, which is part of research with tenant b."""
    add_group(register, "research")
    add_group(register, "physics", parent="research")
    register.tenants.update("a", move=MoveTo(parent="physics"), actor=ACTOR)
    register.tenants.update("b", move=MoveTo(parent="research"), actor=ACTOR)


def test_a_request_above_a_quota_is_refused_with_the_numbers(register: Registry) -> None:
    a_cluster(register)
    limit(register, "a", vcpus=4, vms=10)
    add_request(register, 3)

    with pytest.raises(QuotaExceededError) as raised:
        add_request(register, 2)

    (exceeded,) = raised.value.exceeded
    assert (exceeded.tenant, exceeded.resource) == ("a", "vcpus")
    assert (exceeded.limit, exceeded.used, exceeded.requested) == (4, 3, 2)
    assert "the quota of a is 4 vcpus, 3 in use and 2 requested" in str(raised.value)
    assert add_request(register, 1).count == 1
    assert len(register.requests.list().items) == 2
    add_request(register, 9, tenant="b")


def test_the_quota_of_a_group_counts_for_all_below_it(register: Registry) -> None:
    a_cluster(register)
    in_groups(register)
    limit(register, "research", vms=5)
    limit(register, "physics", vms=4)
    add_request(register, 3, tenant="a")

    with pytest.raises(QuotaExceededError) as raised:
        add_request(register, 3, tenant="a")
    assert [(each.tenant, each.used) for each in raised.value.exceeded] == [
        ("physics", 3),
        ("research", 3),
    ]
    add_request(register, 2, tenant="b")
    with pytest.raises(QuotaExceededError, match="the quota of research is 5 vms, 5 in use"):
        add_request(register, 1, tenant="a")
    assert uses(register, "a") == [("physics", "vms", 4, 3, 0), ("research", "vms", 5, 5, 0)]
    register.tenants.update("a", move=MoveTo(parent=None), actor=ACTOR)
    add_request(register, 9, tenant="a")


def test_what_is_deleted_is_not_asked_any_more_but_held_until_it_is_gone(
    register: Registry,
) -> None:
    (host,) = a_cluster(register)
    limit(register, "a", vms=2)
    request = add_request(register, 2)
    for key in place(register, request, host, 2).assignment_ids:
        run_vm(register, key)
    assert uses(register, "a") == [("a", "vms", 2, 2, 2)]

    register.requests.delete(request.id, actor=ACTOR)

    assert uses(register, "a") == [("a", "vms", 2, 0, 2)]
    assert add_request(register, 2).count == 2
    (view,) = (t for t in register.rounds.read_cluster(take_lease(register)).tenants if t.vms)
    assert (view.name, view.vms) == ("a", 2)


def test_requests_above_a_quota_wait_where_that_is_said(register: Registry) -> None:
    a_cluster(register)
    in_groups(register)
    limit(register, "a", vms=1)

    assert add_request(register, 2, over_quota="wait").count == 2
    register.quotas.set("research", {}, over_quota="wait", actor=ACTOR)
    assert add_request(register, 2).count == 2
    register.quotas.set("a", {}, over_quota="refuse", actor=ACTOR)
    with pytest.raises(QuotaExceededError):
        add_request(register, 2, over_quota="wait")
    register.quotas.set("a", {}, over_quota="inherit", actor=ACTOR)
    assert register.quotas.get("a").over_quota is None
    assert add_request(register, 2).count == 2


def test_limits_are_set_taken_back_and_checked(register: Registry) -> None:
    a_cluster(register)
    limit(register, "a", vcpus=4, vms=1)
    limit(register, "a", vcpus=None)

    assert uses(register, "a") == [("a", "vms", 1, 0, 0)]
    (first, second) = register.events.list(kind="quota_set")
    assert first.data["limits"] == {"vcpus": 4, "vms": 1}
    assert second.data == {"before": {"vcpus": 4}, "limits": {"vcpus": None}}
    for limits in ({"gpu": 1}, {"vcpus": -1}, {"vms": 10**13}):
        with pytest.raises(InvalidError, match="limits"):
            register.quotas.set("a", limits, actor=ACTOR)
    with pytest.raises(NotFoundError):
        limit(register, "nobody", vms=1)
    with pytest.raises(InvalidError, match="vms"):
        register.resources.add("vms", "VMs", actor=ACTOR)


def test_a_tenant_with_a_quota_can_be_removed(register: Registry) -> None:
    add_tenant(register, "a")
    limit(register, "a", vms=1)

    register.tenants.remove("a", actor=ACTOR)

    assert register.tenants.list().items == ()
    assert register.check() == []


# ---- two at once --------------------------------------------------------------


def test_two_requests_at_once_do_not_exceed_a_quota_together(
    register: Registry, other: Registry
) -> None:
    a_cluster(register)
    limit(register, "a", vcpus=4)

    with held_before_its_end(register) as start:
        first = start(lambda: add_request(register, 3))
        second = outcome(lambda: add_request(other, 3))

    assert first.result().count == 3
    assert isinstance(second, QuotaExceededError)
    assert uses(register, "a") == [("a", "vcpus", 4, 3, 0)]


def test_tenants_of_a_group_that_ask_at_once_do_not_exceed_its_quota(
    register: Registry, other: Registry
) -> None:
    a_cluster(register)
    in_groups(register)
    limit(register, "research", vms=4)

    with held_before_its_end(register) as start:
        first = start(lambda: add_request(register, 3, tenant="a"))
        second = outcome(lambda: add_request(other, 3, tenant="b"))

    assert first.result().count == 3
    assert isinstance(second, QuotaExceededError)


def test_a_tenant_moved_into_a_group_as_it_asks_is_counted_there(
    register: Registry, other: Registry
) -> None:
    a_cluster(register)
    in_groups(register)
    limit(register, "physics", vms=4)
    register.tenants.update("a", move=MoveTo(parent=None), actor=ACTOR)

    with held_before_its_end(register) as start:
        to = MoveTo(parent="physics")
        moved = start(lambda: register.tenants.update("a", move=to, actor=ACTOR))
        requested = outcome(lambda: add_request(other, 5, tenant="a"))

    assert moved.result().parent == "physics"
    assert isinstance(requested, QuotaExceededError)


def test_a_request_and_a_removal_of_its_tenant_at_once_agree(
    register: Registry, other: Registry
) -> None:
    a_cluster(register)

    with held_before_its_end(register) as start:
        removed = start(lambda: register.tenants.remove("a", actor=ACTOR))
        requested = outcome(lambda: add_request(other))

    assert removed.result().name == "a"
    assert isinstance(requested, NotFoundError)
    assert register.check() == []


# ---- rounds --------------------------------------------------------------------


def test_a_commit_beyond_a_quota_that_was_lowered_meanwhile_drops_what_is_beyond(
    register: Registry,
) -> None:
    (host,) = a_cluster(register)
    limit(register, "a", vcpus=5)
    request = add_request(register, 5)
    part = Placement(request_id=request.id, host_id=host.id, count=5)
    commit = a_commit(take_lease(register), (part,), {host.id: host.version})
    limit(register, "a", vcpus=3)

    done = register.rounds.commit_round(commit)

    assert len(done.assignment_ids) == 3
    assert [each.count for each in done.dropped] == [2]
    waiting = register.requests.get(request.id).waiting
    assert waiting is not None
    assert (waiting.reason, waiting.count) == ("quota", 2)
    assert uses(register, "a") == [("a", "vcpus", 3, 5, 3)]
    assert register.check() == []


def test_a_gang_that_a_quota_breaks_is_dropped_whole(register: Registry) -> None:
    (host,) = a_cluster(register)
    request = add_request(register, 4, min_count=4)
    part = Placement(request_id=request.id, host_id=host.id, count=4)
    commit = a_commit(take_lease(register), (part,), {host.id: host.version})
    limit(register, "a", vms=3)

    done = register.rounds.commit_round(commit)

    assert done.assignment_ids == ()
    assert sum(each.count for each in done.dropped) == 4


def test_two_commits_at_once_do_not_exceed_the_quota_of_a_group_together(
    register: Registry, other: Registry
) -> None:
    one, two = a_cluster(register, hosts=2)
    in_groups(register)
    limit(register, "research", vcpus=4)
    lease = take_lease(register)
    commits = []
    for tenant, host in (("a", one), ("b", two)):
        request = add_request(register, 3, tenant=tenant, over_quota="wait")
        part = Placement(request_id=request.id, host_id=host.id, count=3)
        commits.append(a_commit(lease, (part,), {host.id: host.version}))

    with held_before_its_end(register) as start:
        first = start(lambda: register.rounds.commit_round(commits[0]))
        second = other.rounds.commit_round(commits[1])

    assert len(first.result().assignment_ids) == 3
    assert len(second.assignment_ids) == 1
    assert uses(register, "research") == [("research", "vcpus", 4, 6, 4)]
    assert register.check() == []


def test_a_quota_of_one_resource_binds_nobody_who_does_not_use_it(register: Registry) -> None:
    a_cluster(register)
    register.resources.add("gpu", "GPU", actor=ACTOR)
    add_vm_type(register, "gpu", gpu=1)
    limit(register, "a", gpu=0)

    assert add_request(register, 3).count == 3
    with pytest.raises(QuotaExceededError, match="the quota of a is 0 gpu"):
        add_request(register, 1, vm_type="gpu")


def test_what_a_vm_takes_beyond_its_type_counts_when_asked_and_when_held(
    register: Registry,
) -> None:
    (host,) = a_cluster(register)
    register.resources.set_overhead("memory_mib", 128, actor=ACTOR)
    limit(register, "a", memory_mib=2 * 3072 + 200)

    with pytest.raises(QuotaExceededError, match="is 6344 memory_mib, 0 in use and 6400 requested"):
        add_request(register, 2)

    place(register, add_request(register, 1), host)
    assert uses(register, "a") == [("a", "memory_mib", 6344, 3200, 3200)]


def test_a_request_grows_within_its_quota_and_shrinks_in_any_case(register: Registry) -> None:
    a_cluster(register)
    limit(register, "a", vms=3)
    request = add_request(register, 2)

    with pytest.raises(QuotaExceededError, match="is 3 vms, 2 in use and 2 requested"):
        register.requests.change(request.id, count=4, actor=ACTOR)

    assert register.requests.change(request.id, count=3, actor=ACTOR).count == 3
    limit(register, "a", vms=0)
    assert register.requests.change(request.id, count=1, actor=ACTOR).count == 1
