"""What confines a host's guests is known of it, and told where nothing does."""

from __future__ import annotations

from dataclasses import replace

from registry import Registry
from registry.hosts import Host
from tests.register import a_report, add_host


def look(register: Registry, model: str | None, *, shares_kept: bool | None = None) -> Host:
    report = replace(a_report(), security_model=model, shares_kept=shares_kept)
    return register.hosts.record_report(register.hosts.get("h1").id, report)


def unconfined(register: Registry) -> int:
    return [event.kind for event in register.events.list()].count("host_unconfined")


def test_a_host_without_a_security_model_is_warned_of_at_its_first_look_and_once(
    register: Registry,
) -> None:
    add_host(register, "h1", up=False)
    assert register.hosts.get("h1").security_model is None

    host = look(register, "none")
    look(register, "none")

    assert host.security_model == "none"
    assert any("no security model" in warning for warning in host.warnings)
    assert unconfined(register) == 1


def test_a_host_that_confines_its_guests_no_more_is_told_and_one_that_does_again_is_not(
    register: Registry,
) -> None:
    add_host(register, "h1")
    confined = look(register, "apparmor")
    assert (confined.security_model, confined.warnings) == ("apparmor", ())

    look(register, "none")
    assert unconfined(register) == 1
    again = look(register, "selinux")

    assert (again.security_model, again.warnings) == ("selinux", ())
    assert unconfined(register) == 1


def test_what_a_look_does_not_tell_stays_as_it_was_known(register: Registry) -> None:
    add_host(register, "h1")
    look(register, "apparmor", shares_kept=False)

    host = look(register, None)

    assert (host.security_model, host.shares_kept) == ("apparmor", False)
    [warning] = host.warnings
    assert "no cgroup of processors" in warning


def test_the_host_as_the_ledger_counts_it_is_the_same_before_and_after(register: Registry) -> None:
    add_host(register, "h1")
    before = register.hosts.get("h1").version

    assert look(register, "none").version == before
