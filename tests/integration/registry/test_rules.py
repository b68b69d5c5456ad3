"""Groups and spreads hold, whoever commits: on SQLite and on PostgreSQL."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from registry import ConflictError, InvalidError, Registry
from registry.requests import MembershipRule, Rules
from registry.rounds import Placement
from tests.integration.ledger.test_races import a_placement, held_before_its_end, other
from tests.raw_sql import RawSql
from tests.register import a_cluster, a_commit, add_host, add_request, place, take_lease

__all__ = ["other"]  # a fixture
APART = Rules(anti_affinity=MembershipRule(group="web"))
TOGETHER = Rules(affinity=MembershipRule(group="cache"))


def hosts_of(registry: Registry, *requests: UUID) -> list[str | None]:
    return sorted(
        str(vm.host)
        for request in requests
        for vm in registry.vms.list(request_id=request).items
        if vm.host is not None
    )


def at_once(registry: Registry, other: Registry, first: Any, second: Any) -> Any:
    """Return what two commits came to, the first held before its end while the other goes on."""
    with held_before_its_end(registry) as start:
        ahead = start(lambda: registry.rounds.commit_round(first))
        behind = other.rounds.commit_round(second)
    return ahead.result(), behind


def test_a_request_says_where_its_vms_may_be(register: Registry) -> None:
    a_cluster(register)
    rules = Rules(
        forbids=("old",),
        prefers=("ssd", "fast"),
        zone="east",
        anti_affinity=MembershipRule(group="web", soft=True),
        affinity=MembershipRule(group="rack"),
    )

    made = add_request(register, 2, rules=rules)

    assert made.rules.prefers == ("fast", "ssd")
    assert register.requests.get(made.id).rules == made.rules
    assert made.rules.anti_affinity == MembershipRule(group="web", soft=True)
    view = register.rounds.read_cluster(take_lease(register))
    assert [(group.name, group.apart, group.hard) for group in view.vm_groups] == [
        ("web", True, False),
        ("rack", False, True),
    ]
    assert view.requests[0].rules == made.rules


def test_a_group_means_one_thing_while_somebody_is_in_it(register: Registry) -> None:
    a_cluster(register)
    first = add_request(register, rules=APART)

    with pytest.raises(ConflictError, match="one of anti-affinity, requested is soft affinity"):
        add_request(register, rules=Rules(affinity=MembershipRule(group="web", soft=True)))
    add_request(register, rules=Rules(affinity=MembershipRule(group="web")), tenant="b")

    register.requests.delete(first.id, actor="test")
    changed = add_request(register, rules=Rules(affinity=MembershipRule(group="web", soft=True)))
    assert changed.rules.affinity == MembershipRule(group="web", soft=True)


@pytest.mark.parametrize(
    ("rules", "field"),
    [
        (
            Rules(anti_affinity=MembershipRule(group="a"), affinity=MembershipRule(group="b")),
            "affinity",
        ),
        (Rules(affinity=MembershipRule(group="a"), spread="zone"), "spread"),
        (Rules(zone="east", spread="zone"), "spread"),
        (Rules(spread="rack"), "spread"),
        (Rules(forbids=("no label!",)), "forbids"),
        (Rules(zone="no zone!"), "zone"),
        (Rules(affinity=MembershipRule(group="No Name")), "affinity.group"),
    ],
)
def test_rules_that_nothing_can_keep_are_refused(
    register: Registry, rules: Rules, field: str
) -> None:
    a_cluster(register)

    with pytest.raises(InvalidError) as refused:
        add_request(register, 2, rules=rules)

    assert refused.value.field == f"rules.{field}"


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"requires": ("ssd",), "rules": Rules(forbids=("ssd",))}, "rules.forbids"),
        ({"rules": Rules(prefers=("ssd",), forbids=("ssd",))}, "rules.prefers"),
        ({"rules": Rules(zone="east", forbids=("zone=east",))}, "rules.zone"),
        ({"requires": ("zone=west",), "rules": Rules(zone="east")}, "requires"),
        ({"requires": ("zone=west", "zone=east")}, "requires"),
        ({"requires": ("zone=west",), "rules": Rules(spread="zone")}, "rules.spread"),
        ({"hosts": ("host1",), "rules": Rules(anti_affinity=MembershipRule(group="web"))}, "count"),
    ],
)
def test_a_request_whose_rules_contradict_each_other_is_refused(
    register: Registry, given: dict[str, Any], field: str
) -> None:
    a_cluster(register)

    with pytest.raises(InvalidError) as refused:
        add_request(register, 2, **given)
    assert refused.value.field == field


def test_two_commits_at_once_put_one_vm_of_a_group_on_a_host(
    register: Registry, other: Registry
) -> None:
    h1, _ = a_cluster(register, hosts=2)
    one, two = add_request(register, rules=APART), add_request(register, rules=APART)
    place(register, one, h1)

    behind = register.rounds.commit_round(a_placement(register, two.id, "h1"))

    assert [part.count for part in behind.dropped] == [1]
    waiting = register.requests.get(two.id).waiting
    assert waiting is not None
    assert waiting.reason == "group_moved"
    first, second = at_once(
        register,
        other,
        a_placement(register, two.id, "h2"),
        a_placement(register, add_request(register, rules=APART).id, "h2"),
    )
    assert (len(first.assignment_ids), len(second.assignment_ids)) == (1, 0)
    assert hosts_of(register, one.id, two.id) == ["h1", "h2"]
    assert register.check() == []


def test_two_commits_at_once_put_a_group_on_one_host(register: Registry, other: Registry) -> None:
    """No host moves under either of them: the group alone tells."""
    a_cluster(register, hosts=2)
    one, two = add_request(register, 2, rules=TOGETHER), add_request(register, 3, rules=TOGETHER)

    first, second = at_once(
        register,
        other,
        a_placement(register, one.id, "h1", count=2),
        a_placement(register, two.id, "h2", count=3),
    )

    assert len(first.assignment_ids) == 2
    assert second.assignment_ids == ()
    assert [part.count for part in second.dropped] == [3]
    assert hosts_of(register, one.id, two.id) == ["h1", "h1"]


def test_a_gang_that_its_group_breaks_is_dropped_whole(register: Registry) -> None:
    h1, h2, h3 = a_cluster(register, hosts=3)
    place(register, add_request(register, rules=APART), h1)
    gang = add_request(register, 3, min_count=3, rules=APART)

    done = register.rounds.commit_round(a_placement(register, gang.id, "h1", "h2", "h3"))

    assert done.assignment_ids == ()
    assert sum(part.count for part in done.dropped) == 3
    assert {part.host_id for part in done.dropped} == {h1.id, h2.id, h3.id}


def test_two_commits_at_once_keep_a_spread(register: Registry, other: Registry) -> None:
    a_cluster(register, hosts=0)
    for name, zone in (("e1", "east"), ("e2", "east"), ("w1", "west")):
        add_host(register, name, labels=(f"zone={zone}",))
    request = add_request(register, 4, rules=Rules(spread="zone"))

    first, second = at_once(
        register,
        other,
        a_placement(register, request.id, "e1", count=2),
        a_placement(register, request.id, "e2", "w1", count=1),
    )

    assert len(first.assignment_ids) == 2
    assert hosts_of(register, request.id) == ["e1", "e1", "w1"]
    assert sum(part.count for part in second.dropped) == 1
    view = register.rounds.read_cluster(take_lease(register)).requests[0]
    assert view.spread is not None
    assert (view.spread.most, view.spread.placed) == (2, (("east", 2), ("west", 1)))


def test_two_requests_at_once_make_one_group(register: Registry, other: Registry) -> None:
    a_cluster(register)

    with held_before_its_end(register) as start:
        first = start(lambda: add_request(register, rules=APART))
        second = add_request(other, rules=APART)

    view = register.rounds.read_cluster(take_lease(register))
    assert [set(group.requests) for group in view.vm_groups] == [{first.result().id, second.id}]


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        (APART, "group web keeps apart, host"),
        (TOGETHER, "group cache keeps together and is on several hosts"),
    ],
)
def test_a_group_that_somebody_broke_is_found(
    register: Registry, raw: RawSql, rules: Rules, said: str
) -> None:
    """A hand at the database moves VMs; the check does not rest on the code that places them."""
    h1, h2 = a_cluster(register, hosts=2)
    request = add_request(register, 3, rules=Rules())
    place(register, request, h1, count=2)
    place(register, request, h2)
    add_request(register, rules=rules)
    assert register.check() == []

    raw.run(
        "INSERT INTO request_groups (request_id, group_id)"
        " SELECT requests.id, vm_groups.id FROM requests, vm_groups"
        " WHERE requests.count = 3"
    )

    [found] = register.check()
    assert found.startswith(said)


def test_a_soft_group_refuses_nothing(register: Registry) -> None:
    h1, _ = a_cluster(register, hosts=2)
    soft = Rules(anti_affinity=MembershipRule(group="web", soft=True))
    request = add_request(register, 3, rules=soft)
    part = Placement(request_id=request.id, host_id=h1.id, count=3)
    version = register.hosts.get("h1").version

    done = register.rounds.commit_round(a_commit(take_lease(register), (part,), {h1.id: version}))

    assert len(done.assignment_ids) == 3
