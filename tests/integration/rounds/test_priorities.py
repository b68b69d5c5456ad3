"""Priorities of a tenant's requests, from the request to the explanation."""

from __future__ import annotations

from controller.queries.request_explanation import explain_request
from controller.queries.vm_explanation import explain_vm
from controller.rounds.replay import replay_round
from registry import Registry
from tests.integration.moves.test_room import DecidesHere, run
from tests.readers import a_tenant, an_operator
from tests.register import add_host, add_request, add_tenant, add_vm_type


def test_the_highest_priority_goes_first_among_a_tenants_own(register: Registry) -> None:
    add_host(register, "h1", vcpus=4, memory_mib=8192)
    add_vm_type(register, vcpus=1, memory_mib=1024)
    for tenant in ("a", "b"):
        add_tenant(register, tenant)
    sweep = add_request(register, 4, name="sweep", priority=-10)
    urgent = add_request(register, 2, name="urgent", priority=10)
    other = add_request(register, 4, tenant="b", priority=-100)

    report = run(register, 0, decider=DecidesHere())

    placed = {each.id: each.vms_placed for each in register.requests.list().items}
    assert placed == {sweep.id: 0, urgent.id: 2, other.id: 2}
    explanation = explain_request(register, sweep.id, a_tenant(register, "a"))
    assert explanation.waiting.reason == "lower_priority"
    assert "with a higher priority took its place (urgent)" in explanation.waiting.message
    [vm, _] = register.vms.list(request_id=urgent.id).items
    assert explain_vm(register, vm.id, an_operator(register)).phase == "priority"
    assert replay_round(register, report.number).identical


def test_the_order_of_those_that_wait_follows_priorities(register: Registry) -> None:
    add_vm_type(register)
    for tenant in ("a", "b"):
        add_tenant(register, tenant)
    of_b = add_request(register, tenant="b", priority=-5)
    low, high = add_request(register, priority=-5), add_request(register, priority=5)

    orders = [
        [explain_request(register, each.id, reader).order for each in (of_b, low, high)]
        for reader in (a_tenant(register, "a"), an_operator(register))
    ]

    assert orders == [[1, 2, 1], [1, 3, 2]]
