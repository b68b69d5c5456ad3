"""`fuga scale`, `label` and `extend` as a person types them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from controller.cli.site.hosts import parse_amounts, parse_ratios
from controller.cli.site.networks import parse_host_sources
from controller.cli.site.quotas import parse_limits
from controller.cli.vms.changes import parse_labels
from controller.terminal.errors import BadInputError
from controller.terminal.pairs import parse_pairs
from simulation.errors import InputError
from simulation.experiments.study_plan import _parse_assignments
from simulation.slots.moving.move_options import BalanceOptions, _read_option
from tests.fakes.http_api import HttpApi
from tests.unit.controller.cli.api_documents import REQUEST_ID, VM_ID, Fuga, a_request, a_vm

REQUEST = f"/v1/requests/{REQUEST_ID}"


@pytest.fixture(autouse=True)
def web(api: HttpApi) -> None:
    api.on_list("/v1/requests", a_request(count=3))
    api.on_list("/v1/vms", a_vm())
    changed = a_request(count=5, labels={"env": "prod"}, expires_at="2026-01-02T00:00:00Z")
    api.on("PATCH", REQUEST, changed)
    api.on("PATCH", f"/v1/vms/{VM_ID}", a_vm(labels={}))


@pytest.mark.parametrize(
    ("words", "body", "told"),
    [
        (["scale", "web", "-n", "5"], {"count": 5}, "3 -> 5 VMs"),
        (["scale", "web", "-n", "2", "--remove", "web-1"], {"count": 2, "remove": [VM_ID]}, "VMs"),
        (["label", "web", "env=prod", "a-"], {"labels": {"env": "prod", "a": None}}, "env=prod"),
        (["extend", "web", "--ttl", "2h"], {"ttl_s": 7200}, "ends"),
        (["extend", "web", "--never"], {"ttl_s": "never"}, "ends"),
    ],
)
def test_a_request_is_changed(
    api: HttpApi, fuga: Fuga, words: list[str], body: dict[str, Any], told: str
) -> None:
    ended = fuga(*words)

    [call] = api.calls("PATCH", REQUEST)
    assert (ended.status, call.body) == (0, body)
    assert told in ended.out


def test_a_vm_is_labelled(api: HttpApi, fuga: Fuga) -> None:
    ended = fuga("label", "web-1", "env-")

    [call] = api.calls("PATCH", f"/v1/vms/{VM_ID}")
    assert (ended.status, call.body) == (0, {"labels": {"env": None}})
    assert "no labels" in ended.out


@pytest.mark.parametrize(
    "words",
    [
        ["scale", "web-1", "-n", "2"],
        ["scale", "web", "-n", "2", "--remove", "web"],
        ["extend", "web"],
        ["extend", "web", "--ttl", "2h", "--never"],
        ["extend", "web", "--ttl", "soon"],
        ["label", "web", "env"],
        ["request", "small", "--label", "=x"],
    ],
)
def test_what_makes_no_sense_changes_nothing(api: HttpApi, fuga: Fuga, words: list[str]) -> None:
    assert fuga(*words).status == 2

    assert not [requested for requested in api.asked if requested.method in {"PATCH", "POST"}]


def test_requests_and_vms_are_looked_for_by_label(api: HttpApi, fuga: Fuga) -> None:
    fuga("requests", "--label", "env=prod")
    fuga("vms", "--label", "env=prod", "--state", "stopped")

    assert api.calls("GET", "/v1/requests")[0].query["label"] == "env=prod"
    assert api.calls("GET", "/v1/vms")[0].query["state"] == "stopped"


@pytest.mark.parametrize(
    "given", ["9999-12-31T23:59-14:00", "0001-01-01T00:00+14:00", "999999999d"]
)
@pytest.mark.parametrize(
    "words", [["reserve", "small", "--for", "1h", "--from"], ["events", "--since"]]
)
def test_a_time_outside_the_calendar_is_refused_in_words(
    fuga: Fuga, words: list[str], given: str
) -> None:
    ended = fuga(*words, given)

    assert ended.status != 0
    assert f"{words[-1]}: found {given!r}, wanted" in ended.err


@pytest.mark.parametrize(
    ("parse", "given"),
    [
        (parse_labels, ["env=a", "env=b"]),
        (partial(parse_amounts, "--override"), ["vcpus=1", "vcpus=2"]),
        (partial(parse_amounts, "--override"), ["vcpus=1", "vcpus=1"]),
        (parse_ratios, ["vcpus=1", "vcpus=2"]),
        (parse_limits, ["vcpus=1", "vcpus=none"]),
        (parse_host_sources, ["h1=bridge:br0", "h1="]),
        (partial(parse_pairs, "--weight"), ["a=1", "a=2"]),
        (partial(_parse_assignments, where="--sweep"), ["x=1", "x=2"]),
        (
            lambda given: _read_option(BalanceOptions, "--balance", ",".join(given)),
            ["every_s=60", "every_s=90"],
        ),
    ],
)
def test_a_name_that_is_given_twice_is_refused(
    parse: Callable[[list[str]], Any], given: list[str]
) -> None:
    with pytest.raises((BadInputError, InputError), match="is given twice"):
        parse(given)
