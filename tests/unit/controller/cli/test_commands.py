from __future__ import annotations

import base64
import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from controller.terminal import output
from tests.fakes.http_api import HttpApi, problem
from tests.unit.controller.cli.api_documents import REQUEST_ID, VM_ID, Fuga, a_host, a_request, a_vm


def test_a_request_is_posted_with_a_key_and_the_token(api: HttpApi, fuga: Fuga) -> None:
    api.on("POST", "/v1/requests", a_request(), status=201)

    ended = fuga("request", "small", "-n", "4", "--name", "web", "--tenant", "a")

    (call,) = api.calls("POST", "/v1/requests")
    assert ended.status == 0
    assert "request web" in ended.out
    assert call.body == {
        "vm_type": "small",
        "count": 4,
        "name": "web",
        "tenant": "a",
        "requires": [],
    }
    assert call.headers["Authorization"] == "Bearer secret"
    assert call.headers["Idempotency-Key"]


def test_a_problem_becomes_one_message_and_status_2(api: HttpApi, fuga: Fuga) -> None:
    refusal = problem(404, "not_found", "no vm_type 'huge'; known: small, large")
    api.on("POST", "/v1/requests", refusal, status=404)

    ended = fuga("request", "huge", "--tenant", "a")

    assert ended.status == 2
    assert ended.err == "fuga: no vm_type 'huge'; known: small, large\n"
    assert ended.out == ""


def test_every_faulty_place_of_the_input_is_named_once(api: HttpApi, fuga: Fuga) -> None:
    first = {"in": "body", "pointer": "#/count", "detail": "#/count: found 0, allowed: ≥ 1"}
    second = {"in": "body", "pointer": "#/name", "detail": "#/name: found 'A B', allowed: a name"}
    refusal = problem(422, "invalid", "#/count: found 0, allowed: ≥ 1", first, second)
    api.on("POST", "/v1/requests", refusal, status=422)

    ended = fuga("request", "small", "-n", "0")

    assert ended.status == 2
    assert ended.err.count("#/count") == 1
    assert ended.err.count("found 'A B'") == 1


def test_a_refused_token_says_what_to_do(api: HttpApi, fuga: Fuga) -> None:
    api.on("GET", "/v1/requests", problem(401, "unauthorized", "unknown token"), status=401)

    ended = fuga("requests")

    assert ended.status == 2
    assert "FUGA_TOKEN" in ended.err


def test_an_error_of_the_server_is_status_1(api: HttpApi, fuga: Fuga) -> None:
    api.on("GET", "/v1/hosts", problem(500, "internal", "logged as incident 7"), status=500)

    assert fuga("host", "list").status == 1


def test_no_api_is_status_4_and_says_how_to_start_it(
    fuga: Fuga, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FUGA_URL", "http://127.0.0.1:1")

    ended = fuga("vms")

    assert ended.status == 4
    assert "fuga up" in ended.err


def test_an_unknown_option_is_status_2(fuga: Fuga) -> None:
    assert fuga("requests", "--colour").status == 2


@pytest.mark.parametrize(
    "arguments", [("-o", "json", "vms"), ("vms", "-o", "json")], ids=["before", "after"]
)
def test_json_is_the_records_and_nothing_else(
    api: HttpApi, fuga: Fuga, arguments: tuple[str, ...]
) -> None:
    api.on_list("/v1/vms", a_vm())

    assert fuga(*arguments).json == [a_vm()]


def test_lists_are_read_page_by_page(api: HttpApi, fuga: Fuga) -> None:
    first = {"items": [a_vm(name="web-1")], "next": "cursor-of-the-second"}
    second = {"items": [a_vm(name="web-2")], "next": None}
    api.on("GET", "/v1/vms", first, second)

    names = [vm["name"] for vm in fuga("vms", "-o", "json").json]

    assert names == ["web-1", "web-2"]
    assert api.asked[1].query["cursor"] == "cursor-of-the-second"


def test_as_speaks_with_the_token_of_that_tenant(api: HttpApi, fuga: Fuga, tmp_path: Path) -> None:
    content = {"url": api.url, "operator": "op", "tenants": {"b": "token-of-b"}}
    (tmp_path / "credentials.json").write_text(json.dumps(content))
    api.on_list("/v1/requests")

    fuga("--as", "b", "requests")
    fuga("requests", "--as", "b")

    tokens = [each.headers["Authorization"] for each in api.asked]
    assert tokens == ["Bearer token-of-b"] * 2


def test_requests_say_what_they_wait_for(api: HttpApi, fuga: Fuga) -> None:
    waiting = {"count": 3, "reason": "no_room", "round": 7, "detail": {}}
    api.on_list("/v1/requests", a_request(waiting=waiting, vms_placed=1))

    assert "3: no_room" in fuga("requests").out


@pytest.mark.parametrize(
    ("changes", "shown"),
    [
        ({"vms_wanted": 0, "vms_leaving": 1}, "1: being removed"),
        ({"vms_wanted": 1, "vms_leaving": 2}, "the next slot, 2: being removed"),
        ({"vms_wanted": 0, "state": "expired", "vms_leaving": 1}, "1: being removed"),
    ],
)
def test_requests_say_what_is_being_removed(
    api: HttpApi, fuga: Fuga, changes: dict[str, Any], shown: str
) -> None:
    api.on_list("/v1/requests", a_request(**changes))

    assert shown in fuga("requests", "--all").out


def test_a_host_name_goes_with_the_request(api: HttpApi, fuga: Fuga) -> None:
    api.on("POST", "/v1/requests", a_request(), status=201)

    fuga("request", "small", "--hostname", "db.example.org", "--tenant", "a")

    (call,) = api.calls("POST", "/v1/requests")
    assert call.body["hostname"] == "db.example.org"


@pytest.mark.parametrize(
    ("state", "shown"), [("uploading", "image 25%"), ("absent", "waiting for image")]
)
def test_a_vm_that_waits_for_its_image_is_shown_as_such(
    api: HttpApi, fuga: Fuga, state: str, shown: str
) -> None:
    image = {"image": "os:1", "state": state, "uploaded_bytes": 250, "size_bytes": 1000}
    waits = a_vm(observed="absent", assignment_state="reserved", waits_for_image=image)
    api.on_list("/v1/vms", waits)

    assert shown in fuga("vms").out


def test_wait_ends_when_all_vms_run(api: HttpApi, fuga: Fuga) -> None:
    api.on("POST", "/v1/requests", a_request(), status=201)
    running = a_request(state="placed", vms_placed=4, vms_running=4)
    api.on("GET", f"/v1/requests/{REQUEST_ID}", a_request(vms_placed=4), running)

    ended = fuga("request", "small", "-n", "4", "--wait", "--tenant", "a")

    assert ended.status == 0
    assert "all 4 VMs of web run" in ended.out
    assert "0 of 4 run" in ended.err


def test_wait_that_expires_is_status_3_with_the_reasons(api: HttpApi, fuga: Fuga) -> None:
    waiting = {"count": 3, "reason": "no_room", "round": 7, "detail": {}}
    stuck = a_request(waiting=waiting, vms_placed=1)
    api.on("POST", "/v1/requests", a_request(), status=201)
    api.on("GET", f"/v1/requests/{REQUEST_ID}", stuck)
    explanation = {"waiting": {"message": "memory_mib is short on 8 of 8 hosts"}}
    api.on("GET", f"/v1/requests/{REQUEST_ID}/explanation", explanation)
    failed = a_vm(observed="absent", assignment_state="quarantined", last_error="pool is full")
    api.on_list("/v1/vms", failed)

    ended = fuga("request", "small", "-n", "4", "--wait", "--timeout", "0", "--tenant", "a")

    assert ended.status == 3
    assert "3 wait: no_room" in ended.err
    assert "memory_mib is short on 8 of 8 hosts" in ended.err
    assert "web-1 on host-1: quarantined: pool is full" in ended.err


def test_wait_ends_at_once_when_the_request_was_deleted(api: HttpApi, fuga: Fuga) -> None:
    api.on("POST", "/v1/requests", a_request(), status=201)
    api.on("GET", f"/v1/requests/{REQUEST_ID}", a_request(state="cancelled"))

    ended = fuga("request", "small", "-n", "4", "--wait", "--tenant", "a")

    assert ended.status == 1
    assert "cancelled" in ended.err


def test_a_request_is_deleted_by_its_name(api: HttpApi, fuga: Fuga) -> None:
    gone = a_request(name="web", state="released", id="0193a000-0000-7000-8000-00000000000f")
    api.on_list("/v1/requests", gone, a_request(vms_placed=4))
    api.on_list("/v1/vms")
    api.on(
        "DELETE", f"/v1/requests/{REQUEST_ID}", a_request(vms_wanted=0, vms_leaving=4), status=202
    )

    ended = fuga("rm", "web")

    assert ended.status == 0
    assert "deleted request web of tenant a, 4 VMs are being removed" in ended.out


def test_a_vm_is_deleted_by_the_beginning_of_its_id(api: HttpApi, fuga: Fuga) -> None:
    api.on_list("/v1/requests", a_request())
    api.on_list("/v1/vms", a_vm())
    api.on("DELETE", f"/v1/vms/{VM_ID}", a_vm(desired="deleted"), status=202)

    ended = fuga("rm", "0193a111")

    assert ended.status == 0
    assert "deleted vm web-1" in ended.out


def test_of_two_tenants_requests_of_one_name_none_is_guessed(api: HttpApi, fuga: Fuga) -> None:
    other = a_request(id="0193a333-0000-7000-8000-000000000001", tenant="b")
    api.on_list("/v1/requests", a_request(), other)
    api.on_list("/v1/vms")

    ended = fuga("rm", "web")

    assert ended.status == 2
    assert REQUEST_ID in ended.err
    assert other["id"] in ended.err


def test_a_slip_in_one_name_deletes_nothing(api: HttpApi, fuga: Fuga) -> None:
    api.on_list("/v1/requests", a_request())
    api.on_list("/v1/vms")
    api.on("DELETE", f"/v1/requests/{REQUEST_ID}", a_request(), status=202)

    ended = fuga("rm", "web", "wbe")

    assert ended.status == 2
    assert "'wbe'" in ended.err
    assert not api.calls("DELETE", f"/v1/requests/{REQUEST_ID}")


def test_a_host_is_added_with_what_was_said_of_it(api: HttpApi, fuga: Fuga) -> None:
    api.on("POST", "/v1/hosts", a_host(health="enrolling"), status=202)

    ended = fuga(
        "host", "add", "host-1", "qemu+tls://h/system", "--label", "ssd",
        "--override", "vcpus=8", "--override", "memory_mib=16384", "--ratio", "vcpus=2.5",
    )  # fmt: skip

    body = api.calls("POST", "/v1/hosts")[0].body
    assert ended.status == 0
    assert ended.out == "host host-1 is starting\n"
    assert body["overrides"] == {"vcpus": 8, "memory_mib": 16384}
    assert body["ratios"] == {"vcpus": 2500}
    assert body["labels"] == ["ssd"]


def test_a_host_that_stays_starting_says_its_error_and_status_3(api: HttpApi, fuga: Fuga) -> None:
    enrolling = a_host(health="enrolling", last_error="connection refused")
    api.on("POST", "/v1/hosts", enrolling, status=202)
    api.on("GET", "/v1/hosts/host-1", enrolling)

    ended = fuga("host", "add", "host-1", "qemu+tls://h/system", "--wait", "--timeout", "0")

    assert ended.status == 3
    assert "host host-1: starting, last error: connection refused" in ended.err
    assert "host host-1 is starting after 0 s, last error: connection refused" in ended.err


@pytest.mark.parametrize(
    ("changes", "shown"),
    [
        ({"health": "enrolling"}, "starting"),
        ({"health": "down", "returning_since": "2026-01-01T00:00:00Z"}, "starting"),
        ({"health": "down"}, "down"),
        ({"health": "up", "returning_since": None}, "up"),
    ],
)
def test_a_host_is_shown_as_starting_until_it_is_up_for_the_first_time_or_again(
    api: HttpApi, fuga: Fuga, changes: dict[str, Any], shown: str
) -> None:
    api.on("GET", "/v1/hosts", {"items": [a_host(**changes)], "next_cursor": None})

    lines = fuga("host", "list").out.splitlines()

    [row] = [line for line in lines if "host-1" in line]
    assert row.split()[:3] == ["host-1", "active", shown]


def test_a_host_is_looked_for_by_its_addresses(api: HttpApi, fuga: Fuga) -> None:
    api.on("GET", "/v1/hosts", {"items": [], "next_cursor": None})

    ended = fuga("host", "list", "--address", "192.0.2.7", "--mac", "52:54:00:12:34:56")

    assert "no such hosts" in ended.out + ended.err
    [requested] = api.asked
    assert requested.query["address"] == "192.0.2.7"
    assert requested.query["mac"] == "52:54:00:12:34:56"


def test_who_adds_a_host_and_waits_is_warned_of_what_its_first_look_found(
    api: HttpApi, fuga: Fuga
) -> None:
    api.on("POST", "/v1/hosts", a_host(health="enrolling"), status=202)
    warning = "libvirt there has no security model"
    api.on("GET", "/v1/hosts/host-1", a_host(security_model="none", warnings=[warning]))

    ended = fuga("host", "add", "host-1", "qemu+tls://h/system", "--wait", "--timeout", "9")

    assert ended.status == 0
    assert f"warning: host host-1: {warning}" in ended.err


@pytest.mark.parametrize("given", ["vcpus", "vcpus=", "=3", "vcpus=-1", "vcpus=1.5", "vcpus=٣"])
def test_an_amount_that_is_none_is_refused_before_anything_is_asked(
    api: HttpApi, fuga: Fuga, given: str
) -> None:
    ended = fuga("type", "add", "odd", given)

    assert ended.status == 2
    assert repr(given) in ended.err
    assert api.asked == []


def test_limits_of_a_type_are_named_beside_its_resources(api: HttpApi, fuga: Fuga) -> None:
    made = {"name": "small", "revision": 1, "resources": {"vcpus": 1}, "limits": {"net_mbps": 50}}
    api.on("POST", "/v1/vm-types", made, status=201)
    api.on_list("/v1/vm-types", made, made | {"name": "free", "limits": {}})

    fuga("type", "add", "small", "vcpus=1", "memory_mib=512", "disk_iops=500", "net_mbps=50")
    head, *_, small, free = (line.split() for line in fuga("type", "list").out.splitlines())

    assert api.asked[0].body == {
        "name": "small",
        "resources": {"vcpus": 1, "memory_mib": 512},
        "limits": {"disk_iops": 500, "net_mbps": 50},
    }
    assert (small[head.index("net_mbps")], free[head.index("net_mbps")]) == ("50", "-")


def test_hosts_show_committed_of_capacity_aligned(api: HttpApi, fuga: Fuga) -> None:
    api.on_list("/v1/hosts", a_host(), a_host(name="a-host-with-a-longer-name"))

    lines = fuga("host", "list").out.splitlines()

    ends = {line.index("3/12") for line in lines if "3/12" in line}
    assert len(ends) == 1


def test_a_host_is_shown_with_what_the_monitor_saw_last(api: HttpApi, fuga: Fuga) -> None:
    domain = {
        "name": "fuga-x",
        "state": "running",
        "assignment_id": None,
        "vcpus": 2,
        "memory_mib": 2048,
        "memory_used_mib": 107,
        "cpu_time_ns": 2_500_000_000,
    }
    report = {
        "polled_at": "2026-01-01T00:00:00Z",
        "cpu_busy_percent": 37.6,
        "memory_used_mib": 900,
        "disk_used_gib": None,
        "domains": [domain],
    }
    api.on("GET", "/v1/hosts/host-1", a_host())
    api.on("GET", "/v1/hosts/host-1/report", report)

    printed = fuga("host", "show", "host-1").out

    assert "processors 38 % busy, memory 900 MiB used, pool -\n" in printed
    assert "foreign" in printed
    assert "2.5 s" in printed


def test_a_host_whose_console_logs_nothing_bounds_is_shown_with_what_to_do(
    api: HttpApi, fuga: Fuga
) -> None:
    report = {
        "polled_at": "2026-01-01T00:00:00Z",
        "cpu_busy_percent": None,
        "memory_used_mib": None,
        "disk_used_gib": None,
        "domains": [],
        "largest_console_bytes": 3 << 30,
    }
    api.on("GET", "/v1/hosts/host-1", a_host())
    api.on("GET", "/v1/hosts/host-1/report", report)

    printed = fuga("host", "show", "host-1").out

    assert "\na console's log has 3072 MiB" in printed
    assert 'stdio_handler = "logd"' in printed


@pytest.mark.parametrize(
    ("command", "admin"),
    [("drain", "draining"), ("maintenance", "maintenance"), ("activate", "active")],
)
def test_a_host_is_told_its_admin_state(api: HttpApi, fuga: Fuga, command: str, admin: str) -> None:
    api.on("PATCH", "/v1/hosts/host-1", a_host(admin=admin))
    api.on_list("/v1/vms")

    assert fuga("host", command, "host-1").status == 0
    assert api.asked[0].body == {"admin": admin}


def a_round(number: int, **changes: Any) -> dict[str, Any]:
    return {
        "number": number,
        "slot_start_at": "2026-01-01T00:00:00Z",
        "policy": "fuga",
        "decided_by": "policy",
        "fallback_reason": None,
        "placed": 4,
        "left_out": 1,
        "dropped": 0,
        "cut": False,
        "shares": [{"tenant": "a", "dominant_share": 0.25}],
        "bound": 6.0,
        "fair_distance": 0.0123,
        "timings": {"policy": 0.02, "commit": 0.01},
        **changes,
    }


def test_rounds_show_policy_shares_bound_and_time_the_newest_below(
    api: HttpApi, fuga: Fuga
) -> None:
    api.on_list("/v1/rounds", a_round(8, decided_by="fallback", cut=True), a_round(7))

    lines = fuga("rounds").out.splitlines()

    rows = [line.split() for line in lines if line.strip() and line.split()[0].isdigit()]
    assert [row[0] for row in rows] == ["7", "8"]
    assert "fallback, cut" in lines[-1]
    assert "a 0.250" in lines[-1]


def test_a_round_is_shown_with_its_prices_or_why_it_has_none(api: HttpApi, fuga: Fuga) -> None:
    of_class = {"labels": ["ssd"], "hosts": 2, "price": {"vcpus": 1.0, "disk_gib": 0.25}}
    prices = {
        "resource": "vcpus",
        "most": 8.0,
        "fair": 6.0,
        "of_fairness": 2.0,
        "classes": [of_class],
        "classes_left_out": 3,
        "error": None,
    }
    api.on("GET", "/v1/rounds/7", a_round(7, prices=prices))
    api.on("GET", "/v1/rounds/8", a_round(8, prices={**prices, "error": "too large"}))
    api.on_list("/v1/rounds", a_round(9, prices=None), a_round(7, prices=prices))
    api.on_list("/v1/vms")

    shown, without, listed = (
        fuga("rounds", *more).out for more in (("show", "7"), ("show", "8"), ())
    )

    assert "price of fairness 2 vcpus, 25.0%" in shown
    assert ["ssd", "2", "1", "0.25"] in [line.split() for line in shown.splitlines()]
    assert "and 3 classes more" in shown
    assert "no prices: too large" in without
    rows = [line.split() for line in listed.splitlines() if line.strip()]
    costs = ["25.0%" in row for row in rows if row[0].isdigit()]
    assert costs == [True, False]


def test_a_round_is_shown_by_number(api: HttpApi, fuga: Fuga) -> None:
    games = [
        {"game": 1, "players": 8, "vms": 9, "solved": "exact", "subgames": 94, "sweeps": 0,
         "certified": True},
        {"game": 2, "players": 90, "vms": 7, "solved": "sweeps", "subgames": 0, "sweeps": 3,
         "certified": None},
    ]  # fmt: skip
    api.on("GET", "/v1/rounds/7", a_round(7, budget_units=100, work=20, parameters={}, games=games))
    api.on_list("/v1/vms", a_vm(round=7), a_vm(name="web-2", round=8))

    ended = fuga("rounds", "show", "7")

    assert ended.status == 0
    assert "20 of 100 units" in ended.out
    rows = [line.split() for line in ended.out.splitlines()]
    assert ["1", "8", "9", "exact", "94", "-", "yes"] in rows
    assert ["2", "90", "7", "sweeps", "-", "3", "not", "checked"] in rows
    assert "web-1" in ended.out
    assert "web-2" not in ended.out


def test_a_replay_that_differs_is_status_1(api: HttpApi, fuga: Fuga) -> None:
    answer = {
        "round": 7,
        "identical": False,
        "policy": "fuga",
        "decided_by": "policy",
        "seconds": 0.1,
        "differences": ["placed: 4, now 3"],
    }
    api.on("POST", "/v1/rounds/7/replay", answer)

    ended = fuga("replay", "7")

    assert ended.status == 1
    assert "placed: 4, now 3" in ended.err


def test_a_plan_is_replayed_by_a_call_that_is_not_made_twice(api: HttpApi, fuga: Fuga) -> None:
    plan = "0193a333-0000-7000-8000-000000000004"
    api.on("GET", f"/v1/plans/{plan}", {"id": plan})
    answer = {"plan": plan, "identical": True, "seconds": 0.1}
    api.on("POST", f"/v1/plans/{plan}/replay", answer)

    ended = fuga("plan", "replay", plan)

    assert ended.status == 0
    assert f"plan {plan}: identical" in ended.out
    (replayed,) = api.calls("POST", f"/v1/plans/{plan}/replay")
    assert "Idempotency-Key" not in replayed.headers


def a_step(kind: str, **more: object) -> dict[str, object]:
    nothing = dict.fromkeys(("game", "host", "how", "players", "vms", "moves"))
    measures = {"fairness": -0.25, "skewness": 0.125, "fair_distance": 0.5}
    lists = {"rows": [], "combinations": [], "shares": [], "order": []}
    return {"kind": kind, **nothing, **measures, **lists, **more}


def test_a_game_is_told_step_by_step_in_eighty_columns(
    api: HttpApi, fuga: Fuga, monkeypatch: pytest.MonkeyPatch
) -> None:
    vms = [{"request": 0, "count": 2}, {"request": 1, "count": 1}]
    weighed = [
        {"vms": vms, "utility": -0.375, "chosen": True},
        {"vms": vms[:1], "utility": -0.5, "chosen": False},
    ]
    rows = [{"request": 0, "host": 0, "count": -2}, {"request": 1, "host": 0, "count": 1}]
    answer = {
        "round": 7,
        "policy": "fuga",
        "decided_by": "policy",
        "identical": True,
        "differences": [],
        "ranking": ["vcpus"],
        "hosts": [{"name": "kvm-07.rack-3.example"}],
        "requests": [
            {"name": "web", "vm_type": "small", "tenant": "a"},
            {"name": "db", "vm_type": "large", "tenant": "b"},
        ],
        "steps": [
            a_step("game", game=1, players=1, vms=3, how="exact", moves=1),
            a_step("move", game=1, host=0, how="exact", combinations=weighed),
            a_step("exchange", host=0, rows=rows),
        ],
        "steps_left_out": 4,
    }
    api.on("GET", "/v1/rounds/7/game", answer)
    monkeypatch.setattr(output, "terminal_width", lambda: 80)

    ended = fuga("rounds", "game", "7", "--steps", "3")

    assert ended.status == 0
    assert "the same again, bit for bit" in ended.out
    assert "1 large + 2 small" in ended.out
    assert "-0.3750" in ended.out
    assert "-2 web, +1 db" in ended.out
    assert "and 4 steps more" in ended.out
    assert max(map(len, ended.out.splitlines())) <= 80


def test_another_policy_is_asked_for_with_its_parameters(api: HttpApi, fuga: Fuga) -> None:
    came_to = {"placed": 4, "left_out": 1, "used": {"vcpus": 0.5}, "fair_distance": 0.1}
    answer = {
        "round": 7,
        "first_policy": "fuga",
        "policy": "best_fit",
        "seconds": 0.1,
        "cut": False,
        "first": came_to,
        "decided": {**came_to, "placed": 5},
        "agreed": 3,
        "shares": [],
        "requests": [
            {"name": "web", "tenant": "a", "vm_type": "small", "asked": 5}
            | {"placed_first": 4, "placed_second": 5, "agreed": 3}
        ],
    }
    api.on("POST", "/v1/rounds/7/second-policy", answer)

    ended = fuga("replay", "7", "--policy", "best_fit", "-p", "overload=0.9")

    assert ended.status == 0
    (call,) = api.calls("POST", "/v1/rounds/7/second-policy")
    assert call.body == {"policy": "best_fit", "parameters": {"overload": 0.9}}
    assert "4 / 5" in ended.out
    assert fuga("replay", "7", "-p", "overload=0.9").status == 2


def test_an_explanation_names_what_is_short_where(api: HttpApi, fuga: Fuga) -> None:
    api.on_list("/v1/requests", a_request())
    api.on_list("/v1/vms")
    shortage = {
        "resource": "memory_mib",
        "hosts_short": 8,
        "hosts": 8,
        "nearest_host": "host-1",
        "missing": 1024,
    }
    explanation = {
        "request": REQUEST_ID,
        "name": "web",
        "state": "pending",
        "wanted": 4,
        "placed": 1,
        "running": 1,
        "waiting": {
            "count": 3,
            "reason": "no_room",
            "message": "no host has room",
            "round": 7,
            "slot_start_at": "2026-01-01T00:00:00Z",
            "shortages": [shortage],
        },
        "order": 2,
        "vms": [],
    }
    api.on("GET", f"/v1/requests/{REQUEST_ID}/explanation", explanation)

    out = fuga("explain", "web").out

    assert "8 of 8 hosts" in out
    assert "host-1" in out
    assert "1024" in out


def test_a_vms_explanation_marks_the_combination_its_host_chose(api: HttpApi, fuga: Fuga) -> None:
    api.on_list("/v1/requests")
    api.on_list("/v1/vms", a_vm())
    utilities = [
        {"combination": {"small": 2}, "minimum_utilization": 0.5, "utility": 1.5, "chosen": True},
        {"combination": {"large": 1}, "minimum_utilization": 0.4, "utility": 1.2, "chosen": False},
    ]
    explanation = {
        "vm": VM_ID,
        "name": "web-1",
        "host": "host-1",
        "round": 3,
        "slot_start_at": "2026-01-01T00:00:00Z",
        "policy": "fuga",
        "decided_by": "policy",
        "phase": "game",
        "utilities": utilities,
        "message": "placed by the game",
    }
    api.on("GET", f"/v1/vms/{VM_ID}/explanation", explanation)

    lines = fuga("explain", "web-1").out.splitlines()

    assert [line for line in lines if "→" in line] == [
        line for line in lines if "2 × small" in line
    ]


def test_a_saved_token_serves_as_that_tenant(api: HttpApi, fuga: Fuga, tmp_path: Path) -> None:
    path = tmp_path / "credentials.json"
    path.write_text(json.dumps({"url": api.url, "operator": "op", "tenants": {}}))
    made = {"id": VM_ID, "name": "c", "role": "tenant", "tenant": "c", "secret": "token-of-c"}
    api.on("POST", "/v1/tokens", made, status=201)

    ended = fuga("token", "create", "--tenant", "c", "--save")

    assert ended.out == "token-of-c\n"
    assert json.loads(path.read_text())["tenants"] == {"c": "token-of-c"}
    assert path.stat().st_mode & 0o777 == 0o600


def a_console(content: bytes, end: int) -> dict[str, Any]:
    return {"vm": VM_ID, "content": base64.b64encode(content).decode(), "end": end}


def test_a_console_is_printed_without_what_could_command_the_terminal(
    api: HttpApi, fuga: Fuga
) -> None:
    api.on_list("/v1/requests")
    api.on_list("/v1/vms", a_vm())
    api.on("GET", f"/v1/vms/{VM_ID}/console", a_console(b"a\x1b[2Jb\r\n\tc \xc3\xbc\xff\n", 9))

    assert fuga("console", "web-1", "--log").out == "a[2Jb\n\tc \u00fc\ufffd\n"


def test_a_console_is_followed_from_where_it_was_until_interrupted(
    api: HttpApi, fuga: Fuga, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses = iter([None, None])
    api.on_list("/v1/requests")
    api.on_list("/v1/vms", a_vm())
    shown = (a_console(b"one\n", 4), a_console(b"t", 5), a_console(b"wo\n", 8))
    api.on("GET", f"/v1/vms/{VM_ID}/console", *shown)

    def pause(_seconds: float) -> None:
        if next(pauses, "over") == "over":
            raise KeyboardInterrupt

    monkeypatch.setattr("controller.cli.vms.consoles.time.sleep", pause)

    assert fuga("console", "web-1").out == "one\ntwo\n"
    call = api.calls("GET", f"/v1/vms/{VM_ID}/console")
    assert [each.query.get("after") for each in call] == [None, "4", "5"]


def test_a_request_has_no_console_but_its_vms_do(api: HttpApi, fuga: Fuga) -> None:
    api.on_list("/v1/requests", a_request())
    api.on_list("/v1/vms")

    ended = fuga("console", "web", "--log")

    assert ended.status == 2
    assert "web-1" in ended.err


def test_a_token_is_renewed_by_one_for_the_same_and_the_old_goes_on(
    api: HttpApi, fuga: Fuga
) -> None:
    old = {
        "id": VM_ID, "name": "scraper-20260801-120000", "role": "operator", "tenant": None,
        "read_only": True, "created_at": "2026-08-01T12:00:00Z", "expires_at": None,
        "last_used_at": None, "revoked_at": None,
    }  # fmt: skip
    api.on("GET", "/v1/tokens", {"items": [old], "next": None})
    api.on("POST", "/v1/tokens", old | {"secret": "fuga_new"}, status=201)

    ended = fuga("token", "renew", "scraper-20260801-120000", "--expires", "never")

    assert ended.out == "fuga_new\n"
    body = dict(api.asked[-1].body)
    assert re.fullmatch(r"scraper-\d{8}-\d{6}", body.pop("name"))
    assert body == {"role": "operator", "tenant": None, "read_only": True, "ttl_s": "never"}
    assert {each.method for each in api.asked} == {"GET", "POST"}


def test_a_token_that_ends_is_renewed_for_as_long_and_not_for_ever(
    api: HttpApi, fuga: Fuga
) -> None:
    made = datetime.now(UTC) - timedelta(days=20)
    old = {
        "id": VM_ID, "name": "ci", "role": "tenant", "tenant": "a", "read_only": False,
        "created_at": made.isoformat(), "expires_at": (made + timedelta(days=30)).isoformat(),
        "last_used_at": None, "revoked_at": None,
    }  # fmt: skip
    api.on("GET", "/v1/tokens", {"items": [old], "next": None})
    api.on("POST", "/v1/tokens", old | {"secret": "fuga_new"}, status=201)

    fuga("token", "renew", "ci")

    assert api.asked[-1].body["ttl_s"] == 30 * 86_400
