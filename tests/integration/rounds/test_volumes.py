"""Rounds with volumes that requests bring: where their VMs go, why they wait, and replays."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from controller.queries.request_explanation import explain_request
from controller.rounds.inputs import decode_inputs
from controller.rounds.interfaces import PolicyChoice, RoundReport, Slot
from controller.rounds.policy_process import PolicyProcess
from controller.rounds.replay import replay_round
from controller.rounds.round import run_round
from registry import HostAdminEvent, Registry, VolumeEvent, VolumeState
from registry.requests import NewVolume
from tests.integration.ledger.test_volumes import a_volume, advance, attach
from tests.readers import a_tenant
from tests.register import (
    ACTOR,
    ON_ANY_DATABASE,
    add_host,
    add_request,
    add_tenant,
    add_vm_type,
    run_vm,
    running,
    take_lease,
)

pytestmark = ON_ANY_DATABASE
POLICIES = ("fuga", "best_fit", "first_fit", "best_fit_drfh")


@pytest.fixture
def site(register: Registry) -> Registry:
    """Two hosts with room for four VMs each; a volume with a file is on h2."""
    for number in (1, 2):
        add_host(register, f"h{number}", vcpus=4, memory_mib=8192, disk_gib=100)
    add_vm_type(register, "small", vcpus=1, memory_mib=1024, disk_gib=10)
    add_tenant(register, "a")
    volume = a_volume(register)
    attach(register, volume, running(register, register.hosts.get("h2"), name="first"))
    register.volumes.detach(volume.id, actor=ACTOR)
    advance(register, volume, VolumeEvent.DETACHED)
    return register


def run(
    registry: Registry, decider: PolicyProcess, at: int = 0, policy: str = "fuga"
) -> RoundReport:
    choice = PolicyChoice(name=policy, parameters={}, budget_units=100_000, decision_time_s=60)
    slot = Slot(start_at=datetime.fromtimestamp(1_700_000_000 + 5 * at, UTC), length_s=5)
    return run_round(slot, take_lease(registry), choice, store=registry.rounds, decider=decider)


def hosts_of(registry: Registry, request: Any) -> list[str | None]:
    return [each.host for each in registry.vms.list(request_id=request.id).items]


@pytest.mark.parametrize("policy", POLICIES)
def test_vms_go_where_their_volumes_have_files_or_room(
    site: Registry, decider: PolicyProcess, policy: str
) -> None:
    bound = add_request(site, name="bound", volumes=["data"])
    # h2 has 100 GiB less 10 for a VM and 10 for the volume: 85 more fit only on h1.
    large = add_request(site, name="large", new_volumes=[NewVolume(name="disk", size_gib=75)])
    too_large = add_request(site, name="many", new_volumes=[NewVolume(name="more", size_gib=75)])

    report = run(site, decider, policy=policy)

    assert hosts_of(site, bound) == ["h2"]
    placed = [hosts_of(site, each) for each in (large, too_large)]
    assert sorted(placed, key=str) == [["h1"], [None]]
    assert replay_round(site, report.number).identical
    inputs = decode_inputs(site.rounds.get(report.number).stored.inputs)
    disk = inputs.snapshot.resources.index("disk_gib")
    assert inputs.snapshot.demand[:, disk].tolist() == [10, 85, 85]
    assert inputs.snapshot.eligible.sum(axis=1).tolist() == [1, 2, 2]
    assert site.check() == []


def test_a_vm_waits_for_the_host_of_its_volume_and_says_so(
    site: Registry, decider: PolicyProcess
) -> None:
    filled = add_request(site, count=3, name="fill", hosts=["h2"])
    run(site, decider)
    request = add_request(site, name="db", volumes=["data"])

    def explained(at: int) -> tuple[str, str, str]:
        run(site, decider, at)
        waiting = explain_request(site, request.id, a_tenant(site, "a")).waiting
        assert waiting is not None
        return waiting.reason, waiting.message, " ".join(waiting.would_help)

    reason, message, help_ = explained(1)
    assert reason == "volume_host_full"
    assert "the host of its volume has no room for the VM: vcpus is short on" in message
    assert "(volume data)" in message
    assert "cannot reach its volume data: detach that" in help_
    assert "h2" not in message + help_

    site.requests.delete(filled.id, actor=ACTOR)
    site.hosts.change_admin("h2", HostAdminEvent.DRAIN, actor=ACTOR)
    reason, message, _ = explained(2)
    assert reason == "volume_host_closed"
    assert "the host of its volume takes no VMs now" in message
    assert "(volume data)" in message

    volume = site.volumes.list(name="data").items[0]
    site.volumes.detach(volume.id, actor=ACTOR)
    run(site, decider, 3)
    assert hosts_of(site, request) == ["h1"]


def test_a_volume_goes_with_a_spot_vm(site: Registry, decider: PolicyProcess) -> None:
    request = add_request(site, spot=True, new_volumes=[NewVolume(name="cache", size_gib=5)])
    (key,) = run(site, decider).assignments[request.id]
    run_vm(site, key)
    (cache,) = site.volumes.list(name="cache").items
    advance(site, cache, VolumeEvent.CREATED, VolumeEvent.ATTACHED)
    site.requests.delete(request.id, actor=ACTOR)
    assert site.volumes.get(cache.id).state is VolumeState.ATTACHED, "its domain may still run"
