"""Spare that rounds keep, and whether it is there."""

from __future__ import annotations

import os
from collections import Counter
from typing import Any

import pytest

from controller.control_center import policy_child
from controller.errors import PolicyFailedError
from controller.plans.spare_watch import SpareWatch
from controller.queries.failure_survival import Survival, survival, survival_in_child
from controller.queries.request_explanation import explain_request
from controller.rounds.policy_process import PolicyAnswer, PolicyProcess
from registry import ConflictError, HostAdminEvent, Registry
from registry.rounds import Lease
from tests.integration.moves.test_room import DecidesHere, run
from tests.readers import an_operator
from tests.register import add_host, add_request, add_tenant, add_vm_type, run_vm, take_lease


@pytest.fixture
def site(register: Registry) -> Registry:
    """Three hosts of ten VMs by memory, two in zone east."""
    for name, zone in (("h1", "east"), ("h2", "east"), ("h3", "west")):
        add_host(register, name, labels=(f"zone={zone}",), domain_type="qemu")
    add_vm_type(register)
    add_tenant(register)
    return register


def run_all(site: Registry) -> None:
    for vm in site.vms.list(limit=500).items:
        if vm.assignment_id is not None and vm.observed == "absent":
            run_vm(site, vm.assignment_id)


def test_rounds_leave_room_for_the_vms_of_any_one_host(site: Registry) -> None:
    add_request(site, 40)

    report = run(site, 0, spare="host")

    assert report is not None
    # 30 places; with n on each host the 20 of two others must hold 3 n.
    assert report.placed == 20
    run_all(site)
    assert survival(site, "host") == Survival(
        domain="host", domains=3, hold=3, not_known=0, immovable=0, lacking=()
    )
    number = site.rounds.list().items[0].number
    stored = site.rounds.get(number).decision()
    assert stored.outcome["details"]["spare"]["kept_for"] == 10
    assert policy_child.decide(stored.inputs).document == stored.outcome

    more = add_request(site, 1)
    run(site, 5, spare="host")
    kept_out = explain_request(site, more.id, an_operator(site)).waiting
    assert kept_out is not None
    assert kept_out.reason == "kept_spare"
    assert "spare for VMs of hosts that may fail" in kept_out.message
    assert Counter(vm.host for vm in site.vms.list(limit=500).items)[None] == 21


class TooSlow(DecidesHere):
    """The policy is killed, the fallback decides."""

    def decide(self, data: bytes, *, policy: str, deadline_s: float) -> PolicyAnswer:
        if policy == "fuga":
            raise PolicyFailedError(policy, "exceeded its time")
        return super().decide(data, policy=policy, deadline_s=deadline_s)


def test_a_fallback_keeps_no_spare_that_may_be_what_took_too_long(site: Registry) -> None:
    add_request(site, 40)

    report = run(site, 0, decider=TooSlow(), spare="host")

    assert report is not None
    assert (report.decided_by, report.placed) == ("best_fit_drfh", 30)
    stored = site.rounds.get(report.number).decision()
    assert policy_child.decide(stored.inputs).document == stored.outcome


def test_what_is_missing_is_told_by_domain_and_watched(site: Registry) -> None:
    add_request(site, 24)
    run(site, 0)
    run_all(site)
    seen: list[Survival | None] = []
    lease: list[Lease | None] = [take_lease(site)]
    watch = SpareWatch(site, lambda: lease[0], "zone", interval_s=1, report=seen.append)

    found = survival(site, "host")

    assert (found.domains, found.hold) == (3, 0)
    first = found.lacking[0]
    assert (first.name, first.known, first.vms_lacking) == ("h1", True, 4)
    assert first.vms[0].why == "no_room"
    assert first.vms[0].missing == {"memory_mib": 1024}
    watch.check()
    lease[0] = None
    watch.check()
    assert seen[1] is None
    zones = seen[0]
    assert zones is not None
    assert (zones.domains, zones.hold, zones.not_known) == (2, 0, 0)
    site.hosts.change_admin("h3", HostAdminEvent.DRAIN, actor="boss")
    assert survival(site, "label:rack").domains == 0


def test_what_an_operator_asks_is_reckoned_in_a_process_of_its_own(site: Registry) -> None:
    process = PolicyProcess()
    children = []
    ask = process.survival

    def noted(*requested: Any, **more: Any) -> Any:
        found = ask(*requested, **more)
        children.append(process._child)
        return found

    process.survival = noted  # type: ignore[method-assign]

    found = survival_in_child(site, "host", process=process)

    assert found == survival(site, "host")
    [child] = children
    assert child is not None
    assert child.pid != os.getpid()
    assert child.poll() is not None  # it does not stay


def test_what_takes_too_long_to_reckon_is_ended_and_told(site: Registry) -> None:
    with pytest.raises(ConflictError, match=r"exceeded its time of 0\.001 s and was killed"):
        survival_in_child(site, "host", within_s=0.001)
