"""`fuga request --spot` against a real API: what is asked for, told, and who it ends for."""

from __future__ import annotations

import json

from registry import Registry
from tests.e2e.conftest import Fuga
from tests.integration.moves.test_room import DecidesHere, run
from tests.register import add_host, add_request, add_tenant, add_vm_type, run_vm


def test_spot_vms_are_asked_for_and_tell_when_they_end_and_for_whom(
    register: Registry, fuga: Fuga
) -> None:
    add_host(register, vcpus=2, memory_mib=8192)
    add_vm_type(register, vcpus=1, memory_mib=1024)
    for tenant in ("a", "b"):
        add_tenant(register, tenant)
    requested = fuga("request", "small", "-n", "2", "--name", "sweep", "--tenant", "b", "--spot")
    assert "request sweep" in requested
    run(register, 0, decider=DecidesHere())
    for vm in register.vms.list(tenant="b").items:
        run_vm(register, vm.assignment_id)
    add_request(register, name="web")
    run(register, 60, decider=DecidesHere(), spot_grace_s=600)

    table, explained = fuga("vms", "--tenant", "b"), fuga("explain", "sweep")

    assert table.count("running until") == 1
    assert "for a/web" in explained
    body = json.loads(fuga("vms", "--tenant", "b", "-o", "json"))
    assert sorted(str(vm["ending_for"]) for vm in body) == ["None", "a/web"]
    assert {vm["spot"] for vm in body} == {True}
    assert "spot_ending" in fuga("explain", "web")
    assert "a/web" in fuga("rounds", "show", "2")
