"""What the doctor says of hosts: what confines their guests, and who reaches them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from controller.cli.doctor.differences import print_differences
from controller.cli.doctor.hosts import confinement_findings, exposure_findings
from controller.session.session import Session
from controller.terminal import output


def a_host(**fields: Any) -> dict[str, Any]:
    defaults = {"name": "h1", "admin": "active", "domain_type": "kvm", "shares_kept": True}
    return defaults | {"security_model": "apparmor", "uri": "qemu+tls://h1/system"} | fields


def wrong(*hosts: dict[str, Any]) -> list[str]:
    return [each.about for each in confinement_findings(hosts) if not each.well]


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({}, []),
        ({"security_model": "selinux"}, []),
        ({"security_model": None}, []),  # it has not answered yet: that is told elsewhere
        ({"security_model": "none"}, ["host h1"]),
        ({"security_model": "none", "admin": "retired"}, []),
        ({"security_model": "none", "domain_type": "qemu"}, []),  # a lab's
    ],
)
def test_a_host_of_guests_that_nothing_confines_is_wrong(
    fields: dict[str, Any], found: list[str]
) -> None:
    assert wrong(a_host(**fields)) == found


def test_models_are_counted_and_what_cannot_be_seen_is_said() -> None:
    hosts = [a_host(), a_host(name="h2"), a_host(name="h3", security_model="none")]

    *_, shown = confinement_findings(hosts)

    assert "apparmor on 2, none on 1" in shown.message
    assert "seccomp_sandbox" in shown.message


def test_a_host_that_shares_no_processors_out_is_told() -> None:
    [shown, _] = confinement_findings([a_host(shares_kept=False)])

    assert (shown.about, shown.level) == ("host h1", "note")
    assert "no cgroup" in shown.message


def test_guests_that_nothing_confines_are_noted_even_where_it_is_not_wrong() -> None:
    [lab, _] = confinement_findings([a_host(security_model="none", domain_type="qemu")])
    [real, _] = confinement_findings([a_host(security_model="none")])

    assert (lab.level, real.level) == ("note", "WRONG")


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({}, []),
        ({"uri": "qemu+ssh://h1/system"}, []),
        ({"uri": "qemu+tcp://h1/system"}, [False]),
        ({"uri": "qemu+tcp://192.0.2.1:16509/system"}, [False]),
        ({"uri": "test+tcp://h1/default"}, [False]),
        ({"uri": "qemu+tcp://h1/system", "admin": "retired"}, []),
        ({"uri": "qemu+tcp://127.0.0.1/system"}, [True]),
        ({"uri": "qemu+tcp://[::1]/system"}, [True]),
        ({"uri": "qemu+tcp://10.213.0.1/system"}, [True]),  # the lab's own, as it recorded
    ],
)
def test_a_host_whose_port_lets_everybody_in_is_wrong_beyond_this_machine(
    fields: dict[str, Any], found: list[bool]
) -> None:
    shown = list(exposure_findings([a_host(**fields)], ("qemu+tcp://10.213.0.1/system",)))

    assert [each.well for each in shown] == found
    assert all("TCP" in each.message for each in shown)


def test_what_repairs_do_is_shown_by_name_before_also_where_nobody_is_asked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    difference = {
        "host": "h1",
        "difference": "wrong_host",
        "subject": "fuga-7",
        "remedy": "confirm",
        "what": "domain fuga-7, stopped",
        "why": "the ledger has this VM on another host",
        "on_confirmation": "its domain is removed",
    }
    shown: list[str] = []

    class Api:
        def items(self, _: str) -> list[dict[str, Any]]:
            return [difference]

        def post(self, path: str, body: dict[str, Any]) -> None:
            shown.append(capsys.readouterr().err)
            assert (path, body["subject"]) == ("hosts/h1/repair", "fuga-7")

    session = cast(Session, SimpleNamespace(api=Api(), json=False))
    print_differences(session, repair=True, yes=True)

    [before] = shown
    assert "domain fuga-7, stopped" in before
    assert "its domain is removed" in before


def test_why_a_leftover_stays_is_seen_on_a_narrow_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "terminal_width", lambda: 80)
    difference = {
        "host": "kvm-00017",
        "difference": "leftover",
        "remedy": "wait",
        "what": "volume fuga-7.qcow2; it stays: domain rescue of kvm-2 uses it",
        "action": "a worker removes it",
        "why": "its VM is deleted",
        "on_confirmation": None,
    }
    session = cast(
        Session, SimpleNamespace(api=SimpleNamespace(items=lambda _: [difference]), json=False)
    )

    print_differences(session, repair=False, yes=False)

    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80
    for word in ("leftover", "removes", "rescue", "deleted"):
        assert word in shown
