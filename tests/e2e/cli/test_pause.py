"""`fuga pause` and `resume` against a real API, and who tells of it."""

from __future__ import annotations

from registry import Registry
from tests.e2e.conftest import Fuga
from tests.register import add_request, add_tenant, add_vm_type


def test_who_looks_learns_that_it_is_paused(register: Registry, fuga: Fuga) -> None:
    add_vm_type(register)
    add_tenant(register)
    add_request(register, name="web")
    assert "paused" not in fuga("rounds")
    assert "slot loop" not in fuga("doctor", status=1)  # there are no hosts

    fuga("pause", "new storage comes")

    for shown in (fuga("rounds"), fuga("doctor", status=1), fuga("explain", "web")):
        assert "new storage comes" in shown
    assert "new storage" not in fuga("rounds", "-o", "json")
    assert "not possible in state paused" in fuga("pause", "again", status=2)

    fuga("resume", "it is there")

    assert "paused" not in fuga("rounds")
    assert [event.reason for event in register.events.list(kind="slot_loop")] == [
        "new storage comes",
        "it is there",
    ]
