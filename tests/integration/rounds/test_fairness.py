"""Gangs and held hosts on a real register center, with what tenants are told."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from controller.queries.request_explanation import explain_request
from controller.queries.vm_explanation import explain_vm
from controller.rounds.interfaces import PolicyChoice, Slot
from controller.rounds.replay import replay_round
from controller.rounds.round import run_round
from placement.catalog.zone_policies import NamedPolicy
from registry import Registry
from registry.rounds import CONTROL_LEASE
from tests.readers import a_tenant, an_operator
from tests.register import ACTOR, add_host, add_request, add_tenant, add_vm_type, remove_vm, run_vm


@pytest.fixture
def cluster(register):
    """Two hosts of four small VMs each; a large VM needs a whole host."""
    for number in (1, 2):
        add_host(register, f"h{number}", vcpus=4, memory_mib=4096, disk_gib=200)
    add_tenant(register, "a")
    add_tenant(register, "b")
    add_vm_type(register, "small", vcpus=1, memory_mib=1024, disk_gib=5)
    add_vm_type(register, "large", vcpus=4, memory_mib=4096, disk_gib=20)
    return register


def run(register, decider, at: int, policy: str = "fuga", zones=()):
    lease = register.leases.acquire(CONTROL_LEASE, "test", 600)
    slot = Slot(start_at=datetime.fromtimestamp(1_700_000_000 + at, UTC), length_s=5)
    choice = PolicyChoice(
        name=policy,
        parameters={"patience": 2},
        budget_units=100_000,
        decision_time_s=60.0,
        zones={zone: NamedPolicy(policy=name, parameters={"patience": 2}) for zone, name in zones},
    )
    return run_round(slot, lease, choice, store=register.rounds, decider=decider)


def end(register: Registry, host: str, count: int) -> None:
    """Delete some VMs on a host and see them gone."""
    found = [vm for vm in register.vms.list(host=host).items if vm.assignment_id is not None]
    for vm in found[:count]:
        run_vm(register, vm.assignment_id)
        register.vms.delete(vm.id, actor=ACTOR)
        remove_vm(register, vm.assignment_id)


@pytest.mark.parametrize("policy", ["fuga", "best_fit_drfh"])
def test_a_host_is_held_for_who_starves_and_both_sides_are_told(cluster, decider, policy):
    add_request(cluster, 8)
    run(cluster, decider, 0, policy)
    large = add_request(cluster, tenant="b", vm_type="large")
    small = add_request(cluster, 3)
    run(cluster, decider, 5, policy)
    end(cluster, "h2", 1)
    run(cluster, decider, 10, policy)
    end(cluster, "h2", 1)

    report = run(cluster, decider, 15, policy)

    assert cluster.rounds.get(report.number).stored.outcome["details"]["holding"] == [[0, 1]]
    assert report.placed == 0
    waits = explain_request(cluster, large.id, an_operator(cluster)).waiting
    assert (waits.reason, waits.held_hosts, waits.held_host_names) == ("no_room", 1, ("h2",))
    assert "h2 will take no other VMs until it fits there" in waits.message
    explanation = explain_request(cluster, large.id, a_tenant(cluster)).waiting
    assert (explanation.held_hosts, explanation.held_host_names) == (1, None)
    assert "h2" not in explanation.message
    kept_out = explain_request(cluster, small.id, a_tenant(cluster)).waiting
    assert kept_out.held_back == 1
    assert "room is reserved for a request that has waited longer" in kept_out.message
    assert replay_round(cluster, report.number).identical

    end(cluster, "h2", 4)
    report = run(cluster, decider, 20, policy)

    (vm,) = cluster.vms.list(request_id=large.id).items
    assert (report.placed, vm.host) == (1, "h2")
    placed = explain_vm(cluster, vm.id, an_operator(cluster))
    assert placed.phase == "held"
    assert "was reserved for its request" in placed.message


def test_a_host_that_a_zone_holds_back_is_told_to_both_sides(register, decider):
    for host, zone in (("h1", "east"), ("h2", "west")):
        add_host(register, host, vcpus=4, memory_mib=4096, disk_gib=200, labels=(f"zone={zone}",))
    add_tenant(register, "a")
    add_tenant(register, "b")
    add_vm_type(register, "small", vcpus=1, memory_mib=1024, disk_gib=5)
    add_vm_type(register, "large", vcpus=4, memory_mib=4096, disk_gib=20)
    zones = (("east", "first_fit"), ("west", "best_fit_drfh"))
    add_request(register, 8)
    run(register, decider, 0, zones=zones)
    large = add_request(register, tenant="b", vm_type="large")
    small = add_request(register, 3)
    run(register, decider, 5, zones=zones)
    end(register, "h2", 1)
    run(register, decider, 10, zones=zones)
    end(register, "h2", 1)

    report = run(register, decider, 15, zones=zones)

    assert report.placed == 0
    waits = explain_request(register, large.id, an_operator(register)).waiting
    assert waits.held_host_names == ("h2",)
    assert explain_request(register, small.id, a_tenant(register)).waiting.reason == "held_back"
    end(register, "h2", 4)
    run(register, decider, 20, zones=zones)
    (vm,) = register.vms.list(request_id=large.id).items
    assert explain_vm(register, vm.id, an_operator(register)).phase == "held"


def test_a_gang_is_placed_whole_and_told_what_it_lacks_till_then(cluster, decider):
    add_request(cluster, 3)
    run(cluster, decider, 0)
    gang = add_request(cluster, 6, tenant="b", min_count=6)

    run(cluster, decider, 5)

    waits = explain_request(cluster, gang.id, a_tenant(cluster)).waiting
    assert (waits.reason, waits.fit, waits.needed) == ("gang_not_whole", 5, 6)
    assert "5 of its VMs would fit, 6 are needed at once" in waits.message
    end(cluster, next(vm.host for vm in cluster.vms.list(tenant="a").items if vm.host), 1)
    assert run(cluster, decider, 10).placed == 6
    assert cluster.check() == []
    (first, *_) = cluster.vms.list(request_id=gang.id).items
    assert explain_vm(cluster, first.id, an_operator(cluster)).phase == "gang"
