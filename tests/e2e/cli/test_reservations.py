"""`fuga reserve` against a real API: asked for, listed, drawn on, cancelled."""

from __future__ import annotations

import json
from datetime import timedelta, timezone

from registry import Registry
from tests.e2e.conftest import Fuga
from tests.integration.moves.test_room import DecidesHere, run
from tests.integration.rounds.test_reservations import decide
from tests.register import add_host, add_tenant, add_vm_type, take_lease


def test_room_is_reserved_listed_drawn_on_and_given_back(register: Registry, fuga: Fuga) -> None:
    add_host(register, vcpus=4, memory_mib=8192)
    add_vm_type(register, vcpus=1, memory_mib=1024)
    add_tenant(register, "a")
    requested = fuga(
        *("reserve", "small", "-n", "3", "--for", "2h", "--name", "launch"),
        *("--tenant", "a", "--no-wait"),
    )
    assert "reservation launch" in requested
    [each] = register.reservations.list_pending()
    decide(register, each)
    register.reservations.begin_and_end_due()
    run(register, 0, decider=DecidesHere())

    table = fuga("reservations")
    assert "launch" in table
    assert "in_force" in table
    fuga("request", "small", "-n", "2", "--name", "web", "--tenant", "a", "--reservation", "launch")
    run(register, 60, decider=DecidesHere())
    shown = json.loads(fuga("reservation", "show", "launch", "-o", "json"))
    assert (shown["used"], shown["left"], shown["held"]) == (2, 1, 1)
    output = fuga("reservation", "show", "launch").splitlines()[:3]
    assert [line.split()[0] for line in output] == ["reservation", "from", "there"]
    assert "cancelled reservation launch" in fuga("reservation", "cancel", "launch")
    assert "no reservations" in fuga("reservations")


def test_a_time_of_another_zone_is_repeated_in_that_zone(register: Registry, fuga: Fuga) -> None:
    add_vm_type(register)
    add_tenant(register, "a")
    words = ("reserve", "small", "--for", "2h", "--name", "launch", "--tenant", "a", "--no-wait")
    zone = timezone(timedelta(hours=-5))
    at = (register.now() + timedelta(days=2)).astimezone(zone).replace(microsecond=0)
    long_ago = "2020-01-01T08:00:00-05:00"

    said = fuga(*words, "--from", at.isoformat())
    refused = fuga(*words, "--from", long_ago, status=2)

    ends_at = at + timedelta(hours=2)
    assert f"from {at.isoformat(sep=' ')} until {ends_at.isoformat(sep=' ')}:" in said
    assert long_ago in refused


def test_a_reservation_is_found_by_name_and_by_parts_of_its_id_and_nothing_else_is(
    register: Registry, fuga: Fuga
) -> None:
    add_vm_type(register)
    add_tenant(register, "a")
    fuga(*("reserve", "small", "--for", "2h", "--name", "launch", "--tenant", "a", "--no-wait"))
    [each] = register.reservations.list_pending()

    for typed in ("launch", str(each.id), each.id.hex[-8:], str(each.id)[:13]):
        assert "reservation launch" in fuga("reservation", "show", typed)
    for typed in ("Launch", "lau nch", "\x1b[31mred", "-", "x" * 500, "ffff", "", "%", "é"):
        output = fuga("reservation", "show", "--", typed, status=2)
        assert "no reservation with name or id" in output


def test_whoever_asks_for_a_reservation_learns_that_nothing_is_decided(
    register: Registry, fuga: Fuga
) -> None:
    add_vm_type(register)
    add_tenant(register, "a")
    requested = (
        "reserve",
        "small",
        "--for",
        "2h",
        "--name",
        "launch",
        "--tenant",
        "a",
        "--no-wait",
    )
    show = ("reservation", "show", "launch")

    assert "nothing is decided: no control centre leads yet" in fuga(*requested)
    take_lease(register)
    assert "decided" not in fuga(*show)
    fuga("pause", "new storage comes")
    assert "the slot loop is paused" in fuga(*show)
    assert "new storage comes" not in fuga(*show, "-o", "json")
    fuga("reservation", "cancel", "launch")
    assert "paused" not in fuga(*show)
