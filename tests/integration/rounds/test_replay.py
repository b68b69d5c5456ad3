"""Rounds on a real register center, and their replays, whoever decided them."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from controller.control_center.purge import purge_all
from controller.queries.request_explanation import explain_request
from controller.queries.vm_explanation import explain_vm
from controller.rounds.inputs import decode_inputs
from controller.rounds.interfaces import PolicyChoice, Slot
from controller.rounds.replay import replay_round
from controller.rounds.round import run_round
from registry import RoundPurgedError
from registry.admin import Periods
from registry.db.packed_json import pack_json, unpack_json
from registry.rounds import CONTROL_LEASE
from tests.readers import a_tenant, an_operator
from tests.register import ACTOR, add_host, add_tenant, add_vm_type


@pytest.fixture
def cluster(register):
    """Three hosts, two tenants, more asked for than fits."""
    for number in range(3):
        add_host(register, f"h{number}", vcpus=4, memory_mib=8192, disk_gib=200)
    add_tenant(register, "a")
    add_tenant(register, "b")
    add_vm_type(register, "small", vcpus=1, memory_mib=3072, disk_gib=15)
    add_vm_type(register, "medium", vcpus=2, memory_mib=6144, disk_gib=30)
    for tenant, vm_type in (("a", "small"), ("b", "medium")):
        register.requests.create(
            tenant=tenant, vm_type=vm_type, count=5, name=f"{vm_type}s", actor=ACTOR
        )
    return register


def choose(**changes) -> PolicyChoice:
    values = {"name": "fuga", "parameters": {}, "budget_units": 100_000, "decision_time_s": 60.0}
    return PolicyChoice(**{**values, **changes})


def run(register, decider, choice: PolicyChoice, at: int = 0):
    lease = register.leases.acquire(CONTROL_LEASE, "test", 600)
    slot = Slot(start_at=datetime.fromtimestamp(1_700_000_000 + at, UTC), length_s=5)
    return run_round(slot, lease, choice, store=register.rounds, decider=decider)


def test_a_round_is_replayed_bit_for_bit(cluster, decider):
    report = run(cluster, decider, choose())

    replayed = replay_round(cluster, report.number)

    assert (replayed.identical, replayed.policy, replayed.decided_by) == (True, "fuga", "policy")
    assert report.placed > 0


def test_a_round_that_its_budget_cut_is_replayed_bit_for_bit(cluster, decider):
    report = run(cluster, decider, choose(budget_units=3))

    replayed = replay_round(cluster, report.number)

    assert cluster.rounds.get(report.number).cut
    assert (replayed.identical, replayed.cut) == (True, True)
    assert report.placed > 0  # what the game did not place, the remainder did


def test_a_round_that_the_fallback_decided_is_replayed_bit_for_bit(cluster, decider):
    report = run(cluster, decider, choose(decision_time_s=1e-6))

    record = cluster.rounds.get(report.number)
    replayed = replay_round(cluster, report.number)

    assert (record.policy, record.decided_by) == ("fuga", "fallback")
    assert "exceeded its time" in record.fallback_reason
    assert (replayed.identical, replayed.policy) == (True, "best_fit_drfh")
    assert report.placed > 0


def test_a_tampered_outcome_is_told(cluster, decider, raw):
    report = run(cluster, decider, choose())
    outcome = unpack_json(raw.value("SELECT packed_outcome FROM round_inputs"))
    outcome["placed"][0][2] = 99
    raw.run("UPDATE round_inputs SET packed_outcome = ?", pack_json(outcome))

    replayed = replay_round(cluster, report.number)

    assert not replayed.identical
    assert "placed: 1 rows are missing" in replayed.differences[0]


def test_the_next_slot_repeats_nothing_and_a_new_request_is_decided(cluster, decider):
    first = run(cluster, decider, choose())
    second = run(cluster, decider, choose(), at=5)
    assert second is None or second.placed == 0
    assert run(cluster, decider, choose(), at=10) is None

    cluster.requests.create(tenant="a", vm_type="small", count=1, name="late", actor=ACTOR)

    assert run(cluster, decider, choose(), at=15).number > first.number


def test_rounds_of_one_tenant_that_deletes_meanwhile_drop_what_is_gone(cluster, decider):
    class Meanwhile:
        """A store in whose round a tenant deletes its request between read and commit."""

        def read_cluster(self, lease):
            return cluster.rounds.read_cluster(lease)

        def commit_round(self, commit):
            cluster.requests.delete(cluster.requests.find("b", "mediums").id, actor=ACTOR)
            return cluster.rounds.commit_round(commit)

    lease = cluster.leases.acquire(CONTROL_LEASE, "test", 600)
    slot = Slot(start_at=datetime.fromtimestamp(1_700_000_000, UTC), length_s=5)
    report = run_round(slot, lease, choose(), store=Meanwhile(), decider=decider)

    assert report.dropped > 0
    assert {vm.tenant for vm in cluster.vms.list(limit=500).items} == {"a"}
    assert cluster.check() == []


def test_explanations_tell_what_the_round_wrote_down(cluster, decider):
    report = run(cluster, decider, choose())
    record = cluster.rounds.get(report.number)
    request = cluster.requests.find("b", "mediums")

    explanation = explain_request(cluster, request.id, an_operator(cluster))

    assert (explanation.wanted, explanation.placed + explanation.waiting.count) == (5, 5)
    assert explanation.waiting.round == report.number
    assert explanation.waiting.reason == "no_room"
    assert "memory_mib is short on" in explanation.waiting.message
    placed = next(vm for vm in explanation.vms if vm.host is not None)
    here = explain_vm(cluster, placed.vm, an_operator(cluster))
    assert here.host == placed.host
    if here.phase == "game":
        chosen = [each for each in here.utilities if each.chosen]
        assert here.message.endswith("equilibrium, as a second computation confirmed")
        assert len(chosen) == 1
        assert chosen[0].utility == max(each.utility for each in here.utilities)
        assert set(chosen[0].combination) <= {"small", "medium"}
    assert decode_inputs(record.stored.inputs).names.requests[1][1] == "mediums"


def test_a_request_that_no_slot_has_seen_says_that_it_waits_for_one(cluster):
    request = cluster.requests.find("a", "smalls")

    explanation = explain_request(cluster, request.id, a_tenant(cluster))

    assert explanation.waiting.reason == "not_decided_yet"
    assert explanation.order == 1


def test_a_round_from_before_outcomes_were_compressed_is_replayed(cluster, decider, raw):
    report = run(cluster, decider, choose())
    outcome = unpack_json(raw.value("SELECT packed_outcome FROM round_inputs"))
    raw.run("UPDATE round_inputs SET packed_outcome = NULL, outcome = ?", json.dumps(outcome))

    assert replay_round(cluster, report.number).identical


def test_a_purged_round_says_so_and_where_its_vms_are_is_still_told(cluster, decider, raw):
    report = run(cluster, decider, choose())
    raw.run(f"UPDATE rounds SET created_at = {raw.before('now', '8 days')}")

    purge_all(cluster, Periods())

    with pytest.raises(RoundPurgedError, match=f"round {report.number}, .* were purged"):
        replay_round(cluster, report.number)
    request = cluster.requests.find("b", "mediums")
    placed = next(
        vm for vm in explain_request(cluster, request.id, an_operator(cluster)).vms if vm.host
    )
    here = explain_vm(cluster, placed.vm, an_operator(cluster))
    assert (here.host, here.round) == (placed.host, report.number)
    assert "are purged" in here.message
    assert cluster.rounds.list().items[0].placed == report.placed
