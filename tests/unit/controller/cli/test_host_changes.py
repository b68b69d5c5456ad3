"""`fuga host set`, `drain`, `maintenance` and `fuga resource` as an operator types them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fakes.http_api import HttpApi
from tests.unit.controller.cli.api_documents import Fuga, a_host, a_vm

WARNED = ["the override of vcpus, 32, is above what was detected, 16"]


@pytest.mark.parametrize(
    ("words", "body"),
    [
        (["--override", "vcpus=32"], {"overrides": {"vcpus": 32}}),
        (["--detected", "vcpus"], {"overrides": {"vcpus": None}}),
        (["--reserve", "memory_mib=512"], {"reserved": {"memory_mib": 512}}),
        (["--ratio", "vcpus=4"], {"ratios": {"vcpus": 4000}}),
        (["--label-ratio", "vcpus"], {"ratios": {"vcpus": None}}),
        (["--label", "ssd", "--label", "zone=a"], {"labels": ["ssd", "zone=a"]}),
        (["--max-builds", "4"], {"max_builds": 4}),
        (["--credential", "site"], {"credential": "site"}),
        (["--no-credential"], {"credential": None}),
        (
            ["--ssh-host-key", "ssh-ed25519 A", "--ssh-host-key", "ssh-rsa B"],
            {"ssh_host_keys": ["ssh-ed25519 A", "ssh-rsa B"]},
        ),
    ],
)
def test_a_hosts_settings_are_changed_one_by_one(
    api: HttpApi, fuga: Fuga, words: list[str], body: dict[str, Any]
) -> None:
    api.on("PATCH", "/v1/hosts/host-1", a_host(warnings=[]))

    ended = fuga("host", "set", "host-1", *words)

    [call] = api.calls("PATCH", "/v1/hosts/host-1")
    assert (ended.status, call.body) == (0, body)
    assert "host-1 offers 12 vcpus" in ended.out


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--override", "vcpus=1", "--detected", "vcpus"],
        ["--ratio", "vcpus=0"],
        ["--credential", "site", "--no-credential"],
    ],
)
def test_what_makes_no_sense_changes_nothing(api: HttpApi, fuga: Fuga, words: list[str]) -> None:
    assert fuga("host", "set", "host-1", *words).status == 2

    assert api.asked == []


def test_a_doubtful_setting_is_warned_of(api: HttpApi, fuga: Fuga) -> None:
    api.on("PATCH", "/v1/hosts/host-1", a_host(warnings=WARNED))

    ended = fuga("host", "set", "host-1", "--override", "vcpus=32")

    assert ended.status == 0
    assert ended.err == f"warning: host host-1: {WARNED[0]}\n"


@pytest.mark.parametrize("verb", ["drain", "maintenance"])
def test_who_must_act_is_told_when_a_host_goes_out_of_service(
    api: HttpApi, fuga: Fuga, verb: str
) -> None:
    api.on("PATCH", "/v1/hosts/host-1", a_host(admin="draining"))
    api.on_list("/v1/vms", a_vm(), a_vm(name="web-2", observed="stopped"), a_vm(tenant="b"))

    table, document = fuga("host", verb, "host-1"), fuga("host", verb, "host-1", "-o", "json")

    assert "3 VMs are still there" in table.out
    assert "web-1,web-2" in table.out
    occupants = document.json["occupants"]
    assert [(each["tenant"], each["vms"], each["running"]) for each in occupants] == [
        ("a", 2, 1),
        ("b", 1, 1),
    ]
    assert api.calls("GET", "/v1/vms")[0].query["host"] == "host-1"


def test_an_empty_host_may_be_switched_off(api: HttpApi, fuga: Fuga) -> None:
    api.on("PATCH", "/v1/hosts/host-1", a_host(admin="draining"))
    api.on_list("/v1/vms")

    assert "you can switch it off" in fuga("host", "drain", "host-1").out


def test_ratios_are_set_and_listed_by_label(api: HttpApi, fuga: Fuga) -> None:
    kept = {"label": "cheap", "ratios": {"vcpus": 4000}}
    api.on("PUT", "/v1/label-ratios", kept)
    api.on("GET", "/v1/label-ratios", {"items": [kept], "next": None})

    ended = fuga("host", "ratios", "cheap", "vcpus=4")

    [call] = api.calls("PUT", "/v1/label-ratios")
    assert (ended.status, call.body) == (0, kept)
    assert "vcpus=4" in fuga("host", "ratios").out


def test_the_overhead_of_a_vm_is_set_by_resource(api: HttpApi, fuga: Fuga) -> None:
    changed = {"name": "memory_mib", "unit": "MiB", "position": 1, "overhead_per_vm": 96}
    api.on("PATCH", "/v1/resources/memory_mib", changed)
    api.on_list("/v1/resources", changed)

    ended = fuga("resource", "set", "memory_mib", "--overhead", "96")

    [call] = api.calls("PATCH", "/v1/resources/memory_mib")
    assert (ended.status, call.body) == (0, {"overhead_per_vm": 96})
    assert "96" in fuga("resource", "list").out


def test_a_resource_is_added_and_the_answer_says_how_hosts_come_to_offer_it(
    api: HttpApi, fuga: Fuga
) -> None:
    made = {"name": "gpu", "unit": "GPUs", "position": 3, "overhead_per_vm": 0}
    api.on("POST", "/v1/resources", made, status=201)

    ended = fuga("resource", "add", "gpu", "--unit", "GPUs")

    [call] = api.calls("POST", "/v1/resources")
    assert (ended.status, call.body) == (0, {"name": "gpu", "unit": "GPUs"})
    assert "fuga host set HOST --override gpu=AMOUNT" in ended.out
