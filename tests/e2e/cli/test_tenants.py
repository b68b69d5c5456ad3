"""`fuga tenant` against a real API: the example of the operators' guide."""

from __future__ import annotations

from controller.rounds.policy_process import PolicyProcess
from registry import Registry
from tests.e2e.conftest import Fuga
from tests.e2e.slots import run_slot
from tests.register import add_host, add_request, add_vm_type


def words(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines() if line and "─" not in line]


def test_a_tree_is_made_looked_at_and_changed_after_a_dry_run(
    register: Registry, decider: PolicyProcess, fuga: Fuga
) -> None:
    add_host(register, vcpus=60, memory_mib=60 * 3072, disk_gib=900)
    add_vm_type(register)
    fuga("tenant", "create", "research", "--group", "--weight", "2")
    fuga("tenant", "create", "physics", "--parent", "research")
    fuga("tenant", "create", "web")
    for tenant in ("physics", "web"):
        add_request(register, 60, tenant=tenant)
    run_slot(register, decider)

    assert words(fuga("tenant", "list")) == [
        ["name", "kind", "weight", "share", "entitled", "to"],
        ["research", "group", "2.000", "66.7%", "66.7%"],
        ["physics", "tenant", "1.000", "66.7%", "66.7%"],
        ["web", "tenant", "1.000", "33.3%", "33.3%"],
    ]
    assert "\n  physics" in fuga("tenant", "list")
    output = fuga("tenant", "move", "web", "--to", "research", "--dry-run")
    assert words(output) == [
        ["name", "kind", "group", "share", "now", "entitled", "to", "fair", "next", "round"],
        ["research", "group", "/", "66.7%", "66.7%", "→", "100.0%", "66.7%", "→", "100.0%"],
        ["physics", "tenant", "research", "66.7%", "66.7%", "→", "50.0%", "66.7%"],
        ["web", "tenant", "/", "→", "research", "33.3%", "33.3%", "→", "50.0%", "33.3%"],
        ["nothing", "changed;", "0", "others", "would", "keep", "their", "shares"],
    ]
    assert fuga("tenant", "move", "web", "--to", "research") == "web is in group research\n"
    assert fuga("tenant", "move", "web", "--to", "/") == "web is in no group\n"
    assert "nothing changed; 0 others" in fuga("tenant", "set", "web", "--weight", "3", "--dry-run")
    assert fuga("tenant", "set", "web", "--weight", "3") == "web has weight 3\n"
    assert ["entitled", "to", "60.0%"] in words(fuga("tenant", "show", "web"))
    assert "groups of tenants:" in fuga("rounds", "show", "1")
    fuga("tenant", "create", "empty", "--group")
    assert fuga("tenant", "remove", "empty") == "group empty is removed\n"


def test_a_quota_is_set_and_shown(register: Registry, fuga: Fuga) -> None:
    add_vm_type(register)
    fuga("tenant", "create", "research", "--group")
    fuga("tenant", "create", "a", "--parent", "research")
    add_request(register, 3)
    fuga("quota", "set", "research", "vms=20")

    shown = words(fuga("quota", "set", "a", "vcpus=40", "memory_mib=122880", "--over", "wait"))

    assert shown == [
        ["whose", "resource", "requested/limit", "held/limit"],
        ["a", "memory_mib", "9216/122880", "0/122880"],
        ["a", "vcpus", "3/40", "0/40"],
        ["research", "vms", "3/20", "0/20"],
        ["requests", "above", "a", "quota", "wait"],
    ]
    assert words(fuga("quota", "show", "a")) == shown
    assert len(words(fuga("quota", "set", "a", "vcpus=none"))) == 4
