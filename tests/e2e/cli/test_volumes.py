"""`fuga volume` against a real API."""

from __future__ import annotations

import json

from registry import Registry
from tests.e2e.conftest import Fuga
from tests.e2e.moving import a_host_of_guests, a_running_vm
from tests.e2e.volumes import carry_out
from tests.register import add_tenant, add_vm_type


def test_a_volume_is_created_attached_shown_detached_and_removed(
    register: Registry, fuga: Fuga
) -> None:
    for tenant in ("a", "b"):
        add_tenant(register, tenant)
        fuga("volume", "create", "data", "--size", "10GiB", "--tenant", tenant)
    add_vm_type(register, "small")
    a_running_vm(register, a_host_of_guests(register, "kvm-1", disk_gib=100))
    [volume, _] = register.volumes.list().items
    [vm] = [each.name for each in register.vms.list().items]

    assert "'data' is ambiguous" in fuga("volume", "attach", "data", vm, status=2)
    words = ("data", "--tenant", "a")
    assert "creating" in fuga("volume", "attach", "data", vm, "--tenant", "a")
    assert carry_out(register, volume.id) == "attached"
    [head, _, *rows] = fuga("volume", "list", "--host", "kvm-1").splitlines()
    assert head.split() == ["name", "size", "state", "vm", "host", "tenant"]
    assert [row.split() for row in rows] == [["data", "10", "GiB", "attached", vm, "kvm-1", "a"]]
    shown = json.loads(fuga("volume", "show", *words, "-o", "json"))
    assert shown["serial"] == volume.id.hex[:20]
    assert f"virtio-{shown['serial']}" in fuga("volume", "show", *words)

    assert "detach it first" in fuga("volume", "remove", *words, status=2)
    fuga("volume", "detach", *words)
    assert carry_out(register, volume.id) == "available"
    assert "fuga volume list" not in fuga("volume", "list", "--vm", vm)
    assert "removing" in fuga("volume", "remove", *words)
    assert carry_out(register, volume.id) == "removed"
    assert "removed" in fuga("volume", "show", str(volume.id))
    assert "1" in fuga("volume", "list", "--state", "removed")


def test_events_show_volumes_by_their_names(register: Registry, fuga: Fuga) -> None:
    add_tenant(register, "a")
    fuga("volume", "create", "data", "--size", "1", "--tenant", "a")
    fuga("volume", "remove", "data")

    output = fuga("events", "--subject", "data")
    assert output.count("volume data") == 2
    assert "unplaced → removed" in output


def test_a_volume_that_is_too_large_is_refused_by_its_option(
    register: Registry, fuga: Fuga
) -> None:
    add_tenant(register, "a")

    output = fuga("volume", "create", "data", "--size", "9999999TiB", "--tenant", "a", status=2)

    assert "--size" in output
