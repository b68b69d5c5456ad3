"""`fuga stop`, `start`, `reboot` as a person types them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fakes.http_api import HttpApi
from tests.unit.controller.cli.api_documents import REQUEST_ID, VM_ID, Fuga, a_request, a_vm


def a_power(**changes: Any) -> dict[str, Any]:
    return {
        "state": "shutting_down",
        "requested_by": "tenant:a",
        "requested_at": "2026-01-01T00:00:00Z",
        "timeout_s": 60,
        "force_at": None,
        "waits_for": None,
        "last_error": None,
        **changes,
    }


@pytest.fixture(autouse=True)
def web(api: HttpApi) -> None:
    api.on_list("/v1/requests", a_request(count=1))
    api.on_list("/v1/vms", a_vm())
    for verb in ("stop", "start", "reboot"):
        api.on("POST", f"/v1/vms/{VM_ID}/{verb}", a_vm(power=a_power()), status=202)
        api.on("POST", f"/v1/requests/{REQUEST_ID}/{verb}", a_request(), status=202)


@pytest.mark.parametrize(
    ("words", "body"),
    [
        (["stop", "web-1"], {}),
        (["stop", "web-1", "--timeout", "5"], {"timeout_s": 5}),
        (["stop", "web-1", "--force"], {"force": True}),
        (["start", "web-1"], {}),
        (["reboot", "web-1", "--timeout", "0"], {"timeout_s": 0}),
    ],
)
def test_a_vm_is_switched_by_its_name(
    api: HttpApi, fuga: Fuga, words: list[str], body: dict[str, Any]
) -> None:
    ended = fuga(*words)

    [call] = api.calls("POST", f"/v1/vms/{VM_ID}/{words[0]}")
    assert (ended.status, call.body) == (0, body)
    assert "vm web-1 of tenant a" in ended.out


def test_a_request_is_switched_as_a_whole(api: HttpApi, fuga: Fuga) -> None:
    assert fuga("stop", "web").status == 0

    assert len(api.calls("POST", f"/v1/requests/{REQUEST_ID}/stop")) == 1


def test_nothing_is_switched_when_one_of_the_names_is_unknown(api: HttpApi, fuga: Fuga) -> None:
    assert fuga("stop", "web-1", "no-such-vm").status == 2

    assert api.calls("POST", f"/v1/vms/{VM_ID}/stop") == []


def test_wait_looks_until_nothing_is_left_to_do(api: HttpApi, fuga: Fuga) -> None:
    off = a_vm(desired="stopped", observed="stopped")
    api.on("GET", f"/v1/vms/{VM_ID}", a_vm(power=a_power()), off)

    ended = fuga("stop", "web-1", "--wait")

    assert ended.status == 0
    assert ended.out.endswith("done\n")


def test_wait_says_why_a_vm_did_not_start(api: HttpApi, fuga: Fuga) -> None:
    off = a_vm(desired="running", observed="stopped", last_error="its disk is not there")
    api.on("GET", f"/v1/vms/{VM_ID}", a_vm(power=a_power()), off)

    ended = fuga("start", "web-1", "--wait")

    assert ended.status == 1
    assert "off, though they should run:\n  web-1: its disk is not there" in ended.err


def test_vms_shows_what_is_asked_and_what_keeps_it(api: HttpApi, fuga: Fuga) -> None:
    api.on_list("/v1/vms", a_vm(power=a_power(waits_for="its host is unreachable")))

    assert "shutting down, its host is unreachable" in fuga("vms").out
