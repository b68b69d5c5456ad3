"""`fuga move` as a person types it, and what it prints."""

from __future__ import annotations

import time
from typing import Any

import pytest

from controller.cli.vms.requests import VM_COLUMNS
from controller.session import polling
from controller.terminal import output
from controller.terminal.output import text
from controller.terminal.tables import columns_with_room, render_lines
from tests.fakes.http_api import HttpApi, RecordedCall, problem
from tests.unit.controller.cli.api_documents import VM_ID, Fuga, a_request, a_vm

MOVE_ID = "0193a333-0000-7000-8000-00000000cafe"
MIB = 1 << 20


def a_move(**changes: Any) -> dict[str, Any]:
    return {
        "id": MOVE_ID,
        "vm_id": VM_ID,
        "vm_name": "web-1",
        "tenant": "a",
        "from_host": "host-1",
        "to_host": "host-2",
        "kind": "live",
        "state": "pending",
        "reason": "a new fan",
        "requested_by": "operator:ops",
        "requested_at": "2026-01-01T00:00:00Z",
        "cancelled_by": None,
        "began_at": None,
        "ended_at": None,
        "downtime_ms": None,
        "total_bytes": None,
        "remaining_bytes": None,
        "rate_bytes_s": None,
        "last_error": None,
        **changes,
    }


GOING = a_move(
    state="moving",
    began_at="2026-01-01T00:00:01Z",
    total_bytes=2048 * MIB,
    remaining_bytes=512 * MIB,
    rate_bytes_s=64 * MIB,
)
MOVED = a_move(state="moved", ended_at="2026-01-01T00:00:40Z", downtime_ms=150)
FAILED = a_move(state="failed", ended_at="2026-01-01T00:00:40Z", last_error="host-2 lacks avx512f")


@pytest.fixture(autouse=True)
def web(api: HttpApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polling, "_POLL_EVERY_S", 0.01)
    api.on_list("/v1/requests", a_request(count=1))
    api.on_list("/v1/vms", a_vm())
    api.on("GET", f"/v1/vms/{VM_ID}", a_vm())
    api.on("POST", "/v1/moves", a_move(), status=201)
    api.on("GET", f"/v1/moves/{MOVE_ID}", a_move())
    api.on_list("/v1/moves")


@pytest.mark.parametrize(
    ("words", "body"),
    [
        (["web-1"], {}),
        (["vm", "web-1"], {}),
        ([VM_ID], {}),
        (["web-1", "--to", "host-2"], {"host": "host-2"}),
        (["--to", "host-2", "web-1"], {"host": "host-2"}),
        (["web-1", "--cold", "--reason", "a new fan"], {"only_cold": True, "reason": "a new fan"}),
    ],
)
def test_a_word_that_is_no_command_is_the_vm_that_moves(
    api: HttpApi, fuga: Fuga, words: list[str], body: dict[str, Any]
) -> None:
    ended = fuga("move", *words)

    (call,) = api.calls("POST", "/v1/moves")
    assert (ended.status, call.body) == (0, {"vm": VM_ID, **body})
    assert call.headers["Idempotency-Key"]
    assert ended.out == (
        "VM web-1 moves from host-1 to host-2: `fuga move show 0000cafe` shows how far it is\n"
    )


def test_a_request_is_not_moved_and_its_vms_are_named(api: HttpApi, fuga: Fuga) -> None:
    ended = fuga("move", "web")

    assert (ended.status, ended.err) == (2, "fuga: 'web' is a request, not a VM; its VMs: web-1\n")
    assert api.calls("POST", "/v1/moves") == []


def test_a_refused_move_is_told_and_is_status_2(api: HttpApi, fuga: Fuga) -> None:
    detail = "VM web-1 cannot be moved: its tenant says moves=never"
    api.on("POST", "/v1/moves", problem(409, "move_refused", detail), status=409)

    ended = fuga("move", "web-1", "--wait")

    assert (ended.status, ended.err) == (2, f"fuga: {detail}\n")


# ---- --wait ---------------------------------------------------------------------------


def test_wait_shows_what_is_left_and_ends_with_what_happened(api: HttpApi, fuga: Fuga) -> None:
    api.on("GET", f"/v1/moves/{MOVE_ID}", a_move(), GOING, GOING, MOVED)

    ended = fuga("move", "web-1", "--wait")

    assert ended.status == 0
    assert ended.err.splitlines() == [
        "web-1: host-1 → host-2  waits for a worker",
        "web-1: host-1 → host-2  512 MiB left, 64 MiB/s, 8 s to go",
    ]
    assert ended.out == ("VM web-1 moved from host-1 to host-2; its guest was paused for 0.15 s\n")


def test_wait_for_a_move_that_fails_is_status_1_and_says_why(api: HttpApi, fuga: Fuga) -> None:
    api.on("GET", f"/v1/moves/{MOVE_ID}", FAILED)

    ended = fuga("move", "web-1", "--wait")

    assert ended.status == 1
    assert "the move of web-1 to host-2 failed: host-2 lacks avx512f" in ended.err
    assert fuga("-o", "json", "move", "web-1", "--wait").json == FAILED


def test_ctrl_c_leaves_the_move_and_says_how_to_cancel_it(
    fuga: Fuga, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", interrupted)
    ended = fuga("move", "web-1", "--wait")

    assert ended.status == 130
    assert ended.err.splitlines()[-1] == (
        "the move of web-1 continues: `fuga move show 0000cafe` shows it, "
        "`fuga move cancel 0000cafe` cancels it."
    )


def test_wait_ends_at_its_timeout_and_says_that_the_move_goes_on(api: HttpApi, fuga: Fuga) -> None:
    api.on("GET", f"/v1/moves/{MOVE_ID}", GOING)

    ended = fuga("move", "web-1", "--wait", "--timeout", "1")

    assert ended.status == 3
    assert "not over after 1 s: 512 MiB left" in ended.err


def test_an_api_that_is_away_for_a_moment_is_asked_again(api: HttpApi, fuga: Fuga) -> None:
    away = [True]

    def once_away(_asked: RecordedCall) -> tuple[int, Any]:
        if away:
            away.clear()
            return 200, "not an object"
        return 200, MOVED

    api.routes["GET", f"/v1/moves/{MOVE_ID}"] = once_away

    assert fuga("move", "web-1", "--wait").status == 0


# ---- list, show, cancel ---------------------------------------------------------------


def test_moves_are_listed_the_newest_last(api: HttpApi, fuga: Fuga) -> None:
    newest = GOING | {"vm_name": "web-2", "id": MOVE_ID.replace("cafe", "beef")}
    api.routes["GET", "/v1/moves"] = lambda _: (200, {"items": [newest, MOVED], "next": None})

    ended = fuga("move", "list", "--vm", "web-1", "--host", "host-1", "--open")

    (call,) = api.calls("GET", "/v1/moves")
    assert (call.query["vm"], call.query["host"], call.query["open"]) == (VM_ID, "host-1", "true")
    first, second = ended.out.splitlines()[2:]
    assert first.split()[:6] == ["0000cafe", "web-1", "a", "live", "host-1", "→"]
    assert "0.15 s" in first
    assert "moving 75%  512 MiB left, 64 MiB/s, 8 s to go" in second


def test_no_moves_say_so(fuga: Fuga) -> None:
    assert fuga("move", "list").out == "no moves. `fuga move VM` moves one.\n"
    assert fuga("move", "list", "--open").out == "no such moves.\n"


@pytest.mark.parametrize("typed", [MOVE_ID, "0000cafe", "web-1"])
def test_a_move_is_shown_by_its_id_its_end_or_its_vm(api: HttpApi, fuga: Fuga, typed: str) -> None:
    api.on("GET", f"/v1/moves/{MOVE_ID}", MOVED)
    api.routes["GET", "/v1/moves"] = lambda _: (200, {"items": [MOVED], "next": None})

    printed = fuga("move", "show", typed).out

    assert f"move          {MOVE_ID}\n" in printed
    assert "way           host-1 → host-2, live\n" in printed
    assert "state         moved\n" in printed
    assert "guest paused  0.15 s\n" in printed
    assert "progress" not in printed
    assert fuga("move", "show", typed, "-o", "name").out == f"{MOVE_ID}\n"


def test_a_vm_that_never_moved_says_so(fuga: Fuga) -> None:
    ended = fuga("move", "show", "web-1")

    assert (ended.status, ended.err) == (2, "fuga: VM web-1 never moved\n")


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (
            a_move(state="cancelled", ended_at="2026-01-01T00:00:40Z"),
            "the move of web-1 is cancelled; it stays on host-1\n",
        ),
        (
            GOING | {"cancelled_by": "operator:ops"},
            "the move of web-1 ends with the next step of its worker\n",
        ),
    ],
)
def test_a_move_is_cancelled(api: HttpApi, fuga: Fuga, answer: dict[str, Any], told: str) -> None:
    api.on("POST", f"/v1/moves/{MOVE_ID}/cancel", answer, status=202)

    assert fuga("move", "cancel", MOVE_ID).out == told


# ---- VMs that move --------------------------------------------------------------------


def test_the_list_of_vms_shows_both_hosts_of_one_that_moves_on_80_columns() -> None:
    vm = a_vm(moving_to="host-2", labels={}, address="192.0.2.17")
    cells = [[text(column.value(vm)) for column in VM_COLUMNS]]
    headings = [column.heading for column in VM_COLUMNS]

    kept = columns_with_room(VM_COLUMNS, headings, cells, 80)

    columns = [VM_COLUMNS[each] for each in kept]
    rows = [[row[each] for each in kept] for row in (headings, *cells)]
    lines = list(render_lines(columns, rows, 80, bold=False))
    assert max(map(len, lines)) <= 80
    assert "host-1 → host-2  running" in lines[2]


def test_an_explanation_tells_since_when_a_vm_that_moved_is_where_it_is(
    api: HttpApi, fuga: Fuga
) -> None:
    explanation = {
        "vm": VM_ID,
        "name": "web-1",
        "host": "host-2",
        "round": 3,
        "slot_start_at": "2026-01-01T00:00:00Z",
        "policy": "fuga",
        "decided_by": "policy",
        "phase": None,
        "utilities": [],
        "message": "round 3 placed it on another host; it moved from host-1 to host-2",
        "last_move": FAILED,
        "moved_here": MOVED,
    }
    api.on("GET", f"/v1/vms/{VM_ID}/explanation", explanation)

    first, second = fuga("explain", "web-1").out.splitlines()

    assert first.startswith("vm web-1: on host-2 since 2026-01-01 ")
    assert second == explanation["message"]


@pytest.mark.parametrize("words", [["-o", "json", "list"], ["list", "-o", "json"]])
def test_a_command_behind_an_option_is_not_taken_for_a_vm(
    api: HttpApi, fuga: Fuga, words: list[str]
) -> None:
    assert fuga("move", *words).json == []
    assert api.calls("POST", "/v1/moves") == []


def test_each_vm_and_its_way_are_shown_on_80_columns_however_long_their_names_are(
    api: HttpApi, fuga: Fuga, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "terminal_width", lambda: 80)
    names = {"vm_name": "v" * 63, "from_host": "f" * 63, "to_host": "t" * 63}
    api.on_list("/v1/moves", GOING | names)

    shown = fuga("move", "list").out

    assert all(len(line) <= 80 for line in shown[: shown.index("(-o wide")].splitlines())
    for letter in "vft":
        assert shown.split("─\n")[1].count(letter * 2 + letter) >= 63 // 18
    assert {"vm", "state", "progress"} <= set(shown.splitlines()[0].split())
    assert "moving 75%" in shown
