"""What fits beside those that wait, computed in a process of its own on a large site."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from controller.fork_server.children import Child, start_interpreter
from controller.queries.capacity import capacity_left
from controller.queries.capacity_after_queue import (
    CapacityInputs,
    capacity_after_round,
    capacity_in_turn,
)
from registry import Registry
from registry.requests import NO_RULES
from tests.register import add_host, add_request, add_tenant, add_vm_type


@pytest.fixture
def asked(register: Registry) -> CapacityInputs:
    """A host for four VMs, three of which tenant a waits for."""
    add_host(register, "h1", vcpus=4, memory_mib=16384, disk_gib=200)
    add_vm_type(register)
    add_tenant(register)
    add_request(register, 3)
    view = register.cluster_queries.capacity(
        "small", tenant=None, rules=NO_RULES, with_waiting=True
    )
    found = capacity_left(view, "small", requires=(), named=None, rules=NO_RULES)
    return CapacityInputs(
        view=view, found=found, tenant=None, requires=(), named=None, rules=NO_RULES
    )


def test_another_process_computes_it_and_does_not_stay(asked: CapacityInputs) -> None:
    children: list[Child] = []

    def start(module: str, deadline: float) -> Child:
        children.append(start_interpreter(module, deadline))
        return children[-1]

    found = capacity_in_turn(asked, start=start, max_in_thread=0)

    assert found.in_turn == capacity_after_round(asked) == 1
    assert replace(found, in_turn=None) == asked.found
    [child] = children
    assert child.pid != os.getpid()
    assert child.poll() is not None
    assert capacity_in_turn(asked, start=start) == found  # here: it is small
    assert len(children) == 1


def test_what_takes_too_long_is_ended_and_left_out(asked: CapacityInputs) -> None:
    assert capacity_in_turn(asked, within_s=0.001, max_in_thread=0) == asked.found
