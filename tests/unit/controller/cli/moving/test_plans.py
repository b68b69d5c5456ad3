"""`fuga plan` as a person types it, and what it prints."""

from __future__ import annotations

from typing import Any

import pytest

from controller.session import plan_progress, polling
from controller.terminal import output
from tests.fakes.http_api import HttpApi, problem
from tests.unit.controller.cli.api_documents import Fuga

PLAN_ID = "0193a333-0000-7000-8000-00000000beef"


def test_a_plan_cancelled_while_it_is_waited_for_counts_what_moved(
    api: HttpApi, fuga: Fuga
) -> None:
    plan = {"id": PLAN_ID, "moves": 9, "ended": 2, "failed": 0, "not_moved": [], "ended_at": "now"}
    api.on(
        "GET", f"/v1/plans/{PLAN_ID}", {**plan, "state": "proposed"}, {**plan, "state": "cancelled"}
    )
    api.on("POST", f"/v1/plans/{PLAN_ID}/approve", {**plan, "state": "approved"}, status=202)

    ended = fuga("plan", "approve", PLAN_ID, "--wait")

    assert ended.status == 1
    assert ended.out == f"plan {PLAN_ID} is cancelled: 2 VMs moved\n"
    assert "7 of its moves were not over: those under way go on, no others begin" in ended.err


def test_a_vm_deleted_before_it_moved_does_not_stay(api: HttpApi, fuga: Fuga) -> None:
    plan = {"id": PLAN_ID, "moves": 3, "ended": 3, "failed": 2, "not_moved": [], "ended_at": "now"}
    api.on("GET", f"/v1/plans/{PLAN_ID}", {**plan, "state": "done"})
    api.on("POST", f"/v1/plans/{PLAN_ID}/approve", {**plan, "state": "approved"}, status=202)
    moves = [
        {"vm_id": name, "vm_name": name, "from_host": "h1", "move_id": None, "state": None}
        for name in ("gone", "full")
    ]
    refused = [{**each, "refused": "no room"} for each in moves]
    api.on("GET", f"/v1/plans/{PLAN_ID}/moves", {"items": refused})
    api.on("GET", "/v1/vms/gone", {"desired": "deleted"})
    api.on("GET", "/v1/vms/full", {"desired": "running"}, {"desired": "deleted"})

    assert fuga("plan", "approve", PLAN_ID, "--wait").err.endswith(
        "1 VM stays where it is:\n  full stays on h1: no room\n"
    )
    assert fuga("plan", "approve", PLAN_ID, "--wait").status == 0


def test_of_many_moves_that_failed_some_are_looked_into_and_the_others_counted(
    api: HttpApi, fuga: Fuga
) -> None:
    plan = {
        "id": PLAN_ID,
        "moves": 90,
        "ended": 90,
        "failed": 90,
        "not_moved": [],
        "ended_at": "now",
    }
    api.on("GET", f"/v1/plans/{PLAN_ID}", {**plan, "state": "done"})
    api.on("POST", f"/v1/plans/{PLAN_ID}/approve", {**plan, "state": "approved"}, status=202)
    move = {"vm_id": "v", "vm_name": "v", "from_host": "h1", "move_id": None, "state": None}
    api.on("GET", f"/v1/plans/{PLAN_ID}/moves", {"items": [{**move, "refused": "no room"}] * 90})
    api.on("GET", "/v1/vms/v", {"desired": "running"})

    ended = fuga("plan", "approve", PLAN_ID, "--wait")

    assert "50 VMs stay where they are:\n" in ended.err
    assert ended.err.endswith(f"  40 more moves failed: `fuga plan show {PLAN_ID}` lists all\n")
    assert len(api.calls("GET", "/v1/vms/v")) == 50


def test_a_request_that_no_moves_let_in_is_told_what_stands_in_its_way(
    api: HttpApi, fuga: Fuga
) -> None:
    admitted = {"hosts": [], "still_waits": {"count": 1, "reason": "no_room"}}
    stand = {"label": 2, "no_eligible_host": 3}
    plan = a_plan(kind="room", admitted={**admitted, "in_the_way": stand})
    api.on("GET", f"/v1/plans/{PLAN_ID}", plan, {**plan, "admitted": admitted})
    api.on("GET", f"/v1/plans/{PLAN_ID}/moves", {"items": []})

    assert (
        "no moves let this request in; 1 VM waits as before (no room); of the VMs on the hosts"
        " where it could be, 2 may not move by their label, 3 may use no other host\n"
    ) in fuga("plan", "show", PLAN_ID).out
    assert fuga("plan", "show", PLAN_ID).out.endswith("as before (no room)\n")


def test_a_plan_whose_moves_failed_keeps_no_room_and_says_so(api: HttpApi, fuga: Fuga) -> None:
    admitted = {"hosts": [{"host": "kvm-2", "count": 1}], "still_waits": None}
    plan = a_plan(kind="room", admitted=admitted, moves=1, ended=1)
    api.on("GET", f"/v1/plans/{PLAN_ID}", plan, {**plan, "failed": 1})
    api.on("GET", f"/v1/plans/{PLAN_ID}/moves", {"items": []})

    assert "lets in 1 on kvm-2\n" in fuga("plan", "show", PLAN_ID).out
    assert (
        "was to let in 1 on kvm-2; 1 of its moves failed, so no room is kept for the request\n"
    ) in fuga("plan", "show", PLAN_ID).out


def test_no_useful_move_says_that_vms_rest_and_waves_count_from_one(
    api: HttpApi, fuga: Fuga
) -> None:
    plan = a_plan(
        kind="balance",
        state="proposed",
        ended_at=None,
        before={"potential": 1.0, "resting": 2},
        after={"potential": 1.5},
        gain=0.5,
        effect="Better: much. Worse: nothing.",
    )
    move = {
        "wave": 0,
        "vm_name": "a",
        "tenant": "t",
        "from_host": "h1",
        "to_host": "h2",
        "why": "balances",
        "transfer_mib": 1024,
        "refused": None,
        "state": None,
    }
    api.on("GET", f"/v1/plans/{PLAN_ID}", plan)
    refused = {**move, "refused": "it is not on host h1 any more"}
    moves = ([], [move], [refused])
    api.on("GET", f"/v1/plans/{PLAN_ID}/moves", *({"items": each} for each in moves))

    assert "no useful move; 2 VMs moved within" in fuga("plan", "show", PLAN_ID).out
    printed = fuga("plan", "show", PLAN_ID).out
    assert "   1  a   t " in printed
    assert "refused" not in printed
    assert "\nBetter: much. Worse: nothing.\n" in printed
    why = "These moves were refused:\n  a to h2: it is not on host h1 any more\n"
    assert why in fuga("plan", "show", PLAN_ID).out


def test_the_moves_of_a_plan_name_vm_and_hosts_on_80_columns(
    api: HttpApi, fuga: Fuga, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "terminal_width", lambda: 80)
    names = {"vm_name": "v" * 63, "from_host": "f" * 63, "to_host": "t" * 63, "tenant": "n" * 63}
    move = {"wave": 9999, "why": "balances", "transfer_mib": 1, "refused": None, "state": "moved"}
    api.on("GET", f"/v1/plans/{PLAN_ID}", a_plan())
    api.on("GET", f"/v1/plans/{PLAN_ID}/moves", {"items": [move | names]})

    shown = fuga("plan", "show", PLAN_ID).out

    table = shown[shown.index("wave") :]
    assert all(len(line) <= 80 for line in table.splitlines()[:6])
    assert table.split()[:5] == ["wave", "vm", "from", "to", "state"]
    for letter in "vft":
        assert table.count(letter) >= 63


def a_plan(**changes: Any) -> dict[str, Any]:
    return {
        "id": PLAN_ID,
        "kind": "evacuate",
        "state": "done",
        "last_error": None,
        "admitted": None,
        "before": None,
        "not_moved": [],
        "moves": 0,
        "ended": 0,
        "failed": 0,
        "ended_at": "now",
        **changes,
    }


def test_what_has_no_place_is_named_without_a_question_for_each(api: HttpApi, fuga: Fuga) -> None:
    stays = {"why": "no_room", "obstacle": None, "missing": None}
    named = {**stays, "vm": "1", "name": "web-1"}
    api.on("GET", f"/v1/plans/{PLAN_ID}", a_plan(not_moved=[named, {**stays, "vm": "gone"}]))
    api.on("GET", f"/v1/plans/{PLAN_ID}/moves", {"items": []})
    api.on("GET", "/v1/vms/gone", problem(404, "not_found", "no VM"), status=404)

    shown = fuga("plan", "show", PLAN_ID)

    assert shown.status == 0, shown.err
    assert shown.out.endswith("  web-1: no room\n  gone: no room\n")
    assert api.calls("GET", "/v1/vms/1") == []


@pytest.mark.parametrize(
    ("why", "obstacle", "said"),
    [
        ("no_eligible_host", None, "its request allows no other host that takes VMs now"),
        ("obstacle", "label", "its label forbids moves"),
        ("zone_full", None, "zone full"),
    ],
)
def test_a_vm_that_stays_says_what_of_it_stands_in_the_way(
    api: HttpApi, fuga: Fuga, why: str, obstacle: str | None, said: str
) -> None:
    stays = {"why": why, "obstacle": obstacle, "missing": None, "vm": "1", "name": "web-1"}
    api.on("GET", f"/v1/plans/{PLAN_ID}", a_plan(not_moved=[stays]))
    api.on("GET", f"/v1/plans/{PLAN_ID}/moves", {"items": []})

    assert fuga("plan", "show", PLAN_ID).out.endswith(f"  web-1: {said}\n")


def test_ctrl_c_ends_the_command_and_says_that_the_plan_goes_on(
    api: HttpApi, fuga: Fuga, monkeypatch: pytest.MonkeyPatch
) -> None:
    def press(_api: object) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(plan_progress, "moves_under_way", press)
    api.on("GET", f"/v1/plans/{PLAN_ID}", a_plan(state="approved", ended_at=None))
    going = a_plan(state="approved", ended_at=None)
    api.on("POST", f"/v1/plans/{PLAN_ID}/approve", going, status=202)

    ended = fuga("plan", "approve", PLAN_ID, "--wait")

    assert ended.status == 130
    assert f"It goes on: `fuga plan show {PLAN_ID}` shows it" in ended.err


def test_vms_that_came_to_a_host_while_it_was_emptied_are_told(
    api: HttpApi, fuga: Fuga, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(polling, "_POLL_EVERY_S", 0)
    api.on("PATCH", "/v1/hosts/h1", {"name": "h1"})
    api.on("POST", "/v1/plans", a_plan(), status=202)
    api.on("GET", f"/v1/plans/{PLAN_ID}", a_plan())
    api.on("GET", "/v1/hosts/h1", {"inventories": [{"committed": 1}]})
    on_its_way = {"name": "web-2", "host": "h2", "desired": "running"}
    goes = {"name": "web-3", "host": "h1", "desired": "deleted"}
    came = {"name": "web-1", "host": "h1", "desired": "running"}
    looks = iter([[on_its_way, goes], [came, goes]])
    api.routes["GET", "/v1/vms"] = lambda _asked: (200, {"items": next(looks), "next": None})

    ended = fuga("host", "drain", "h1", "--move", "--wait")

    assert ended.status == 1
    assert "VMs came to host h1 while its own moved away: web-1. The same" in ended.err
