"""What one round reads, decides and commits."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from uuid import UUID

import pytest

from controller.control_center.policy_child import answer_request
from controller.errors import PolicyFailedError, SlotSkippedError
from controller.rounds.inputs import decode_inputs
from controller.rounds.interfaces import PolicyChoice, Slot
from controller.rounds.policy_process import Ideal, PolicyAnswer, PolicyFailure
from controller.rounds.round import run_round
from placement.catalog.zone_policies import NamedPolicy
from registry.db.packed_json import unpack_json
from registry.rounds import (
    ClusterView,
    CommittedRound,
    HostView,
    Lease,
    PreemptibleVm,
    RequestView,
    RoundCommit,
    SpotView,
    TenantView,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SLOT = Slot(start_at=NOW, length_s=5)
LEASE = Lease(name="control-centre", holder="me", epoch=3, expires_at=NOW)
CHOICE = PolicyChoice(name="fuga", parameters={}, budget_units=10_000, decision_time_s=30)


def an_id(number: int) -> UUID:
    return UUID(int=number)


def a_host(number: int, **changes) -> HostView:
    values = {
        "id": an_id(number),
        "name": f"host-{number}",
        "version": 7,
        "accepts": True,
        "labels": (),
        "capacity": (4, 8192, 500),
        "committed": (0, 0, 0),
    }
    return HostView(**{**values, **changes})


def a_request(number: int, **changes) -> RequestView:
    values = {
        "id": an_id(100 + number),
        "name": f"req-{number}",
        "tenant_id": an_id(50),
        "vm_type": "small",
        "demand": (1, 3072, 15),
        "count": 2,
        "min_count": 1,
        "requires": (),
        "hosts": None,
        "avoid": (),
        "age": 0,
        "created_at": NOW,
    }
    return RequestView(**{**values, **changes})


def a_view(hosts=None, requests=None) -> ClusterView:
    return ClusterView(
        epoch=3,
        now=NOW,
        resources=("vcpus", "memory_mib", "disk_gib"),
        hosts=tuple([a_host(1), a_host(2)] if hosts is None else hosts),
        tenants=(TenantView(id=an_id(50), name="a", weight=1.0, held=(0, 0, 0)),),
        requests=tuple([a_request(1)] if requests is None else requests),
    )


class FakeStore:
    def __init__(self, view: ClusterView, last=None) -> None:
        self.view = dataclasses.replace(view, last=last)
        self.commits: list[RoundCommit] = []

    def read_cluster(self, lease: Lease) -> ClusterView:
        return self.view

    def commit_round(self, commit: RoundCommit) -> CommittedRound:
        self.commits.append(commit)
        placed = sum(part.count for part in commit.placements)
        ids = tuple(an_id(1000 + each) for each in range(placed))
        return CommittedRound(number=len(self.commits), assignments={an_id(1): ids}, dropped=())


class Deciding:
    """Decides here; policies in ``fail`` raise, those in ``lie`` place too much."""

    def __init__(self, fail=(), lie=()) -> None:
        self.fail, self.lie = fail, lie

    def decide(self, data: bytes, *, policy: str, deadline_s: float) -> PolicyAnswer:
        if policy in self.fail:
            raise PolicyFailedError(policy, "exceeded its time of 30 s and was killed")
        decision = answer_request("decide", data)
        assert not isinstance(decision, PolicyFailure), decision
        if policy in self.lie:
            decision.document["placed"] = [[0, 0, 99]]
        return decision

    def ideal(self, data: bytes, *, resource: int, deadline_s: float) -> Ideal:
        return answer_request("ideal", (data, resource))


def test_a_slot_without_waiting_requests_leaves_no_round():
    store = FakeStore(a_view(requests=()))

    assert run_round(SLOT, LEASE, CHOICE, store=store, decider=Deciding()) is None
    assert store.commits == []


def test_a_round_commits_what_the_policy_placed_with_the_versions_it_saw():
    store = FakeStore(a_view())

    report = run_round(SLOT, LEASE, CHOICE, store=store, decider=Deciding())

    (commit,) = store.commits
    assert report.placed == 2
    assert sum(part.count for part in commit.placements) == 2
    assert {part.request_id for part in commit.placements} == {an_id(101)}
    assert commit.host_versions == {part.host_id: 7 for part in commit.placements}
    assert (commit.holder, commit.epoch) == ("me", 3)
    assert (commit.policy, commit.decided_by, commit.fallback_reason) == ("fuga", "policy", None)
    assert commit.bound == pytest.approx(2)
    assert commit.waiting == {}
    assert decode_inputs(commit.inputs).names.requests == ((str(an_id(101)), "req-1", "small"),)


def test_shares_are_recorded_before_and_after():
    store = FakeStore(a_view())

    run_round(SLOT, LEASE, CHOICE, store=store, decider=Deciding())

    (share,) = store.commits[0].shares
    assert (share["tenant"], share["before"], share["asked"]) == ("a", 0, 2)
    assert share["after"] == pytest.approx(2 * 3072 / 16384)
    assert share["target"] == pytest.approx(share["after"])
    assert store.commits[0].fair_distance == pytest.approx(0)


def test_a_round_tells_how_far_from_fair_it_ended():
    """Of 16 GiB the tenant could have 5 VMs by the sum; only four fit."""
    store = FakeStore(a_view(requests=[a_request(1, count=5)]))

    run_round(SLOT, LEASE, CHOICE, store=store, decider=Deciding())

    (share,) = store.commits[0].shares
    assert store.commits[0].fair_distance == pytest.approx(1 - share["after"] / share["target"])


def test_what_does_not_fit_waits_with_the_nearest_miss():
    store = FakeStore(a_view(requests=[a_request(1, count=5)]))

    report = run_round(SLOT, LEASE, CHOICE, store=store, decider=Deciding())

    assert (report.placed, report.left_out) == (4, 1)
    waiting = store.commits[0].waiting[an_id(101)]
    assert (waiting.count, waiting.reason) == (1, "no_room")
    assert waiting.detail["shortages"] == [
        {
            "resource": "memory_mib",
            "hosts_short": 2,
            "hosts": 2,
            "nearest_host": "host-1",
            "missing": 3072 - 2048,
        }
    ]


def test_a_request_larger_than_every_host_waits_and_says_so():
    store = FakeStore(a_view(requests=[a_request(1, demand=(64, 3072, 15))]))

    run_round(SLOT, LEASE, CHOICE, store=store, decider=Deciding())

    assert store.commits[0].waiting[an_id(101)].reason == "no_host_large_enough"


@pytest.mark.parametrize(
    ("decider", "reason"),
    [
        (Deciding(fail=["fuga"]), "policy fuga exceeded its time of 30 s and was killed"),
        (Deciding(lie=["fuga"]), "infeasible allocation"),
    ],
)
def test_the_fallback_decides_when_the_policy_does_not(decider, reason):
    store = FakeStore(a_view())

    report = run_round(SLOT, LEASE, CHOICE, store=store, decider=decider)

    (commit,) = store.commits
    assert (commit.policy, commit.decided_by) == ("fuga", "fallback")
    assert reason in commit.fallback_reason
    assert decode_inputs(commit.inputs).policy == "best_fit_drfh"
    assert report.placed == 2


def test_the_fallback_ends_no_spot_vms_as_looking_for_them_may_have_taken_too_long():
    full = [dataclasses.replace(a_host(each), committed=a_host(each).capacity) for each in (1, 2)]
    spot = PreemptibleVm(
        id=an_id(300),
        name="sweep-1",
        request_id=an_id(400),
        tenant_id=an_id(50),
        host_id=full[0].id,
        amounts=full[0].capacity,
        may_end=True,
    )
    view = dataclasses.replace(a_view(hosts=full), spot=SpotView(vms=(spot,), kept=()))
    ended, store = FakeStore(view), FakeStore(view)

    run_round(SLOT, LEASE, CHOICE, store=ended, decider=Deciding())
    run_round(SLOT, LEASE, CHOICE, store=store, decider=Deciding(fail=["fuga"]))

    assert [end.vm_id for end in ended.commits[0].spot.ends] == [spot.id]
    assert ended.commits[0].host_versions == {full[0].id: 7}
    assert (store.commits[0].decided_by, store.commits[0].spot.ends) == ("fallback", ())


def test_the_slot_is_skipped_when_nobody_gives_a_feasible_allocation():
    store = FakeStore(a_view())
    both = ["fuga", "best_fit_drfh"]

    with pytest.raises(SlotSkippedError, match=r"policy fuga .*; policy best_fit_drfh"):
        run_round(SLOT, LEASE, CHOICE, store=store, decider=Deciding(fail=both))

    assert store.commits == []


def test_a_round_that_would_repeat_the_last_one_leaves_no_record():
    full = a_view(hosts=[a_host(1, committed=(4, 8192, 60))])
    store = FakeStore(full)
    run_round(SLOT, LEASE, CHOICE, store=store, decider=Deciding())
    (commit,) = store.commits

    class Last:
        inputs_digest, placed, dropped, cut = commit.inputs_digest, 0, 0, False

    again = FakeStore(full, last=Last())

    assert run_round(SLOT, LEASE, CHOICE, store=again, decider=Deciding()) is None
    assert again.commits == []


def test_hosts_that_take_no_vms_count_in_the_pool_and_receive_nothing():
    view = a_view(hosts=[a_host(1, accepts=False), a_host(2)])
    store = FakeStore(view)

    run_round(SLOT, LEASE, CHOICE, store=store, decider=Deciding())

    (commit,) = store.commits
    assert {part.host_id for part in commit.placements} == {an_id(2)}
    assert commit.shares[0]["after"] == pytest.approx(2 * 3072 / 16384)


def test_labels_named_hosts_and_avoided_hosts_bound_where_vms_go():
    hosts = [a_host(1, labels=("ssd",)), a_host(2), a_host(3), a_host(4)]
    requests = [
        a_request(1, requires=("ssd",)),
        a_request(2, hosts=("host-3",)),
        a_request(3, avoid=(an_id(1), an_id(2), an_id(3))),
    ]
    store = FakeStore(a_view(hosts=hosts, requests=requests))

    run_round(SLOT, LEASE, CHOICE, store=store, decider=Deciding())

    went = {(part.request_id, part.host_id) for part in store.commits[0].placements}
    assert went == {(an_id(101), an_id(1)), (an_id(102), an_id(3)), (an_id(103), an_id(4))}


def test_a_zone_may_name_its_own_policy():
    hosts = [a_host(1, labels=("zone=east",)), a_host(2, labels=("zone=west",)), a_host(3)]
    choice = dataclasses.replace(
        CHOICE, zones={"west": NamedPolicy(policy="first_fit", parameters={})}
    )
    store = FakeStore(a_view(hosts=hosts, requests=[a_request(1, count=9)]))

    report = run_round(SLOT, LEASE, choice, store=store, decider=Deciding())

    (commit,) = store.commits
    zones = decode_inputs(commit.inputs).zones
    assert [(zone.name, zone.policy, zone.hosts) for zone in zones] == [
        ("", "fuga", (0, 2)),
        ("west", "first_fit", (1,)),
    ]
    assert report.placed == 6  # two small VMs on each host
    assert set(unpack_json(commit.outcome)["details"]["zones"]) == {"", "west"}


class Overfilling(Deciding):
    """Decides without the threshold that the policy was told."""

    def decide(self, data: bytes, *, policy: str, deadline_s: float) -> PolicyAnswer:
        inputs = decode_inputs(data)
        if inputs.policy == "first_fit":
            data = dataclasses.replace(inputs, parameters={}).encode()
        return super().decide(data, policy=policy, deadline_s=deadline_s)


def test_an_allocation_above_the_overload_threshold_is_refused_and_the_fallback_obeys_it():
    choice = dataclasses.replace(CHOICE, name="first_fit", parameters={"overload": 0.5})
    store = FakeStore(a_view(requests=[a_request(1, count=4)]))

    report = run_round(SLOT, LEASE, choice, store=store, decider=Overfilling())

    (commit,) = store.commits
    assert "is filled above 0.5 of its memory_mib" in commit.fallback_reason
    assert report.placed == 2  # one on each host


def test_the_fallback_obeys_the_threshold_of_each_zone():
    hosts = [a_host(1, labels=("zone=east",)), a_host(2)]
    east = NamedPolicy(policy="first_fit", parameters={"overload": 0.5})
    choice = dataclasses.replace(CHOICE, zones={"east": east})
    store = FakeStore(a_view(hosts=hosts, requests=[a_request(1, count=4)]))

    report = run_round(SLOT, LEASE, choice, store=store, decider=Deciding(fail=["fuga"]))

    (commit,) = store.commits
    assert commit.decided_by == "fallback"
    assert {part.host_id: part.count for part in commit.placements} == {an_id(1): 1, an_id(2): 2}
    assert report.placed == 3
