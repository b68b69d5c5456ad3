"""Trees of tenants in real rounds: what groups share, what is recorded and replayed."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from controller.rounds.interfaces import PolicyChoice, Slot
from controller.rounds.policy_process import PolicyProcess
from controller.rounds.replay import replay_round
from controller.rounds.round import run_round
from registry import Registry
from registry.tenancy import MoveTo
from tests.register import (
    ACTOR,
    add_group,
    add_host,
    add_request,
    add_tenant,
    add_vm_type,
    take_lease,
)


@pytest.fixture
def paper(register: Registry) -> Registry:
    """The example of MCH's paper: three groups, here 60 of either resource.

    Every VM needs some CPU and memory, of which there is plenty: what the
    paper's jobs share are two resources of which each needs one or the other.
    """
    register.resources.add("gpu", "GPU", actor=ACTOR)
    register.resources.add("fpga", "FPGA", actor=ACTOR)
    add_host(register, vcpus=10_000, memory_mib=10_000, overrides={"gpu": 60, "fpga": 60})
    for kind in ("gpu", "fpga"):
        add_vm_type(register, kind, vcpus=1, memory_mib=1, disk_gib=1, **{kind: 1})
    for group, kinds in (("n1", ("gpu", "fpga")), ("n2", ("gpu", "gpu", "fpga")), ("n3", ("gpu",))):
        add_group(register, group)
        for number, kind in enumerate(kinds, start=1):
            name = f"{group}.{number}"
            add_tenant(register, name, parent=group)
            add_request(register, 40, tenant=name, vm_type=kind)
    return register


def run(register: Registry, decider: PolicyProcess, policy: str, **parameters: object) -> int:
    slot = Slot(start_at=datetime(2026, 1, 1, tzinfo=UTC), length_s=60)
    choice = PolicyChoice(
        name=policy, parameters=parameters, budget_units=100_000, decision_time_s=60.0
    )
    lease = take_lease(register)
    report = run_round(slot, lease, choice, store=register.rounds, decider=decider)
    assert report is not None
    return report.number


@pytest.mark.parametrize("policy", ["best_fit_hdrf", "fuga"])
def test_a_round_shares_as_the_tree_of_the_paper_says(
    paper: Registry, decider: PolicyProcess, policy: str
) -> None:
    number = run(paper, decider, policy, ranking=["gpu", "fpga"])

    found = paper.rounds.get(number)
    assert found.decided_by == "policy"
    jobs = {each["tenant"]: round(each["after"] * 60) for each in found.shares}
    assert jobs == {"n1.1": 20, "n1.2": 30, "n2.1": 10, "n2.2": 10, "n2.3": 30, "n3.1": 20}
    groups = {each["group"]: (each["parent"], each["after"]) for each in found.group_shares}
    assert groups == {
        "n1": (None, pytest.approx(1 / 2, abs=0.01)),
        "n2": (None, pytest.approx(1 / 2, abs=0.01)),
        "n3": (None, pytest.approx(1 / 3, abs=0.01)),
    }
    for each in found.group_shares:
        assert each["target"] == pytest.approx(each["after"], abs=0.01)
    assert replay_round(paper, number).identical


def test_a_move_counts_from_the_next_round_on(register: Registry, decider: PolicyProcess) -> None:
    add_host(register, vcpus=12, memory_mib=12 * 1024, disk_gib=120)
    add_vm_type(register, "small", vcpus=1, memory_mib=1024, disk_gib=10)
    add_group(register, "research")
    for name in ("a", "b", "c"):
        add_tenant(register, name)
        add_request(register, 12, tenant=name)
    for name in ("a", "b"):
        register.tenants.update(name, move=MoveTo(parent="research"), actor=ACTOR)

    number = run(register, decider, "fuga")

    found = register.rounds.get(number)
    held = {each["tenant"]: round(each["after"] * 12) for each in found.shares}
    assert held == {"a": 3, "b": 3, "c": 6}
    assert [each["group"] for each in found.group_shares] == ["research"]
    assert register.rounds.list().items[0].group_shares == found.group_shares
    assert replay_round(register, number).identical
