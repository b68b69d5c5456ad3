"""Commands that take many names: few calls to look them up, a bar, and what an error left."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from controller.session import call_series, polling
from tests.fakes.http_api import HttpApi, RecordedCall, problem
from tests.unit.controller.cli.api_documents import Fuga, a_request, a_vm

MANY = 400
VMS = [a_vm(id=f"0193a111-0000-7000-8000-{n:012x}", name=f"web-{n}") for n in range(MANY)]
NAMES = [vm["name"] for vm in VMS]


@pytest.fixture(autouse=True)
def many_vms(api: HttpApi) -> None:
    api.on_list("/v1/requests")
    api.on_list("/v1/vms", *VMS)
    for vm in VMS:
        path = f"/v1/vms/{vm['id']}"
        api.on("GET", path, {**vm, "observed": "absent", "host": None, "desired": "deleted"})
        api.on("DELETE", path, {**vm, "desired": "deleted"}, status=202)
        api.on("POST", f"{path}/stop", vm, status=202)


def reads(api: HttpApi) -> int:
    return sum(each.method == "GET" for each in api.asked)


def changes(api: HttpApi) -> int:
    return sum(each.method != "GET" for each in api.asked)


@pytest.mark.parametrize("words", [["rm"], ["stop"], ["scale", "web", "-n", "1"]])
def test_many_names_are_looked_up_in_lists(api: HttpApi, fuga: Fuga, words: list[str]) -> None:
    request = a_request(count=MANY + 1)
    api.on_list("/v1/requests", request)
    api.on("PATCH", f"/v1/requests/{request['id']}", a_request(count=1))
    ids = [vm["id"] for vm in VMS[:100]]
    ends = [vm["id"][-8:] for vm in VMS[100:200]]
    given = ids + ends + NAMES[200:]
    if words[0] == "scale":
        given = [word for each in given for word in ("--remove", each)]

    ended = fuga(*words, *given)

    assert ended.status == 0, ended.err
    assert changes(api) == (1 if words[0] == "scale" else MANY)
    assert reads(api) < 10


def test_names_of_ended_requests_are_looked_up_in_lists_too(api: HttpApi, fuga: Fuga) -> None:
    ended_ones = [
        a_request(id=f"0193a000-0000-7000-8000-{n:012x}", name=f"job-{n}", state="released")
        for n in range(100)
    ]
    api.on_list("/v1/requests", *ended_ones)
    for each in ended_ones:
        api.on("DELETE", f"/v1/requests/{each['id']}", each, status=202)

    ended = fuga("rm", *[each["name"] for each in ended_ones])

    assert ended.status == 0
    assert ended.out.count("is already deleted") == 100
    assert reads(api) < 10


def test_lists_that_are_long_for_so_few_names_are_not_read_to_their_end(
    api: HttpApi, fuga: Fuga
) -> None:
    def endless(requested: RecordedCall) -> tuple[int, Any]:
        named = requested.query.get("name")
        if named is not None:
            return 200, {"items": [vm for vm in VMS if vm["name"] == named], "next": None}
        return 200, {"items": [a_vm(name="other")] * 500, "next": "more"}

    api.routes["GET", "/v1/vms"] = endless

    ended = fuga("rm", *NAMES[:40])

    assert ended.status == 0
    assert changes(api) == 40
    assert sum("name" not in each.query for each in api.calls("GET", "/v1/vms")) <= 11


@pytest.mark.parametrize("wrong", ["no-such-vm", "double"])
def test_a_slip_among_many_names_changes_nothing(api: HttpApi, fuga: Fuga, wrong: str) -> None:
    twice = [a_vm(id=f"0193a222-0000-7000-8000-{n:012x}", name="double") for n in range(2)]
    api.on_list("/v1/vms", *VMS, *twice)

    ended = fuga("rm", *NAMES, wrong)

    assert ended.status == 2
    assert f"'{wrong}'" in ended.err
    assert changes(api) == 0


@pytest.mark.parametrize("words", [["rm"], ["stop"], ["rm", "-o", "json"]])
def test_an_error_in_the_middle_says_what_was_done(
    api: HttpApi, fuga: Fuga, words: list[str]
) -> None:
    method, action = ("POST", "/stop") if words[0] == "stop" else ("DELETE", "")
    refusal = problem(409, "conflict", "it is being moved")
    api.on(method, f"/v1/vms/{VMS[100]['id']}{action}", refusal, status=409)

    ended = fuga(*words, *NAMES)

    assert ended.status == 2
    assert "it is being moved" in ended.err
    assert "stopped at vm web-100 of tenant a, number 101 of 400" in ended.err
    assert "done: the 100 before it, up to vm web-99 of tenant a" in ended.err
    assert "not done: the 299 after it, from vm web-101 of tenant a on" in ended.err
    assert changes(api) == 101


def test_a_bar_appears_once_it_takes_long(fuga: Fuga, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_series, "BAR_AFTER_S", 0)
    monkeypatch.setenv("TERM", "xterm")

    without = fuga("rm", *NAMES[:3])
    terminal = sys.stderr
    monkeypatch.setattr(type(terminal), "isatty", lambda self: self is terminal)
    with_bar = fuga("rm", *NAMES[:3])

    assert without.err == ""
    assert "/3" in with_bar.err
    assert with_bar.out == without.out  # into a pipe as before


def test_a_wait_for_many_reads_few_of_them_at_each_look(
    api: HttpApi, fuga: Fuga, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(polling, "_POLL_EVERY_S", 0)
    for vm in VMS:
        api.on("GET", f"/v1/vms/{vm['id']}", {**vm, "desired": "deleted"})

    ended = fuga("rm", *NAMES, "--wait", "--timeout", "0")

    assert ended.status == 3
    assert "web-19 of tenant a and 380 more" in ended.err
    assert reads(api) < 10 + 20
