"""`fuga request` with rules, `fuga capacity`, and the table of `fuga explain`."""

from __future__ import annotations

import pytest

from tests.fakes.http_api import HttpApi
from tests.unit.controller.cli.api_documents import REQUEST_ID, Fuga, a_request


def test_options_become_the_rules_of_a_request(api: HttpApi, fuga: Fuga) -> None:
    api.on("POST", "/v1/requests", a_request(), status=201)

    options = "--require ssd --forbid old --prefer nvme --zone east --anti-affinity web:soft"
    ended = fuga("request", "small", *options.split(), "--affinity", "cache")

    assert ended.status == 0, ended.err
    [call] = api.calls("POST", "/v1/requests")
    assert call.body["requires"] == ["ssd"]
    assert call.body["rules"] == {
        "forbids": ["old"],
        "prefers": ["nvme"],
        "zone": "east",
        "anti_affinity": {"group": "web", "soft": True},
        "affinity": {"group": "cache"},
    }


def test_a_request_without_rules_says_nothing_of_them(api: HttpApi, fuga: Fuga) -> None:
    api.on("POST", "/v1/requests", a_request(), status=201)

    fuga("request", "small")

    assert "rules" not in api.calls("POST", "/v1/requests")[0].body


@pytest.mark.parametrize("given", ["web:hard", "web:", "web:soft:soft"])
def test_a_group_is_soft_or_nothing(fuga: Fuga, given: str) -> None:
    ended = fuga("request", "small", "--anti-affinity", given)

    assert ended.status == 2
    assert "wanted GROUP or GROUP:soft" in ended.err


def test_what_keeps_a_request_from_hosts_is_a_table(api: HttpApi, fuga: Fuga) -> None:
    api.on_list("/v1/requests", a_request())
    api.on_list("/v1/vms")
    obstacle = {"hosts": 2, "only": 1, "missing": None, "only_hosts": []}
    explanation = {
        "name": "web",
        "state": "pending",
        "wanted": 1,
        "placed": 0,
        "running": 0,
        "waiting": {
            "count": 1,
            "reason": "anti_affinity",
            "message": "every host with room holds a VM of its anti-affinity group",
            "obstacles": [
                {**obstacle, "kind": "anti_affinity", "what": "web"},
                {**obstacle, "kind": "closed", "what": None, "only_hosts": ["kvm-07"]},
                {**obstacle, "kind": "resource", "what": "vcpus", "missing": 3},
                {**obstacle, "kind": "quota", "what": "vms of a", "missing": 1},
            ],
            "would_help": ["room on 1 host with a VM of group web"],
        },
        "order": 1,
        "vms": [
            {
                "name": "web-1",
                "host": "kvm-07",
                "observed": "absent",
                "round": 1,
                "waits_for_image": {
                    "image": "debian:1",
                    "state": "uploading",
                    "uploaded_bytes": 1,
                    "size_bytes": 4,
                },
            }
        ],
    }
    api.on("GET", f"/v1/requests/{REQUEST_ID}/explanation", explanation)

    out = fuga("explain", "web").out

    assert "anti affinity web" in out
    assert "too little vcpus" in out
    assert "quota vms of a" in out
    assert "debian:1: image 25%" in out
    assert "kvm-07" in out
    assert "  room on 1 host with a VM of group web" in out.splitlines()


def test_capacity_says_how_many_fit_and_what_ends_first(api: HttpApi, fuga: Fuga) -> None:
    row = {"labels": ["ssd"], "capacity": {"vcpus": 8}, "hosts": 3, "open": 2, "fits": 5}
    answer = {
        "vm_type": "small",
        "demand": {"vcpus": 1},
        "fits": 5,
        "runs_out_first": "vcpus",
        "hosts": 3,
        "open": 2,
        "classes": [{**row, "runs_out_first": "vcpus"}],
    }
    api.on("GET", "/v1/capacity", answer)

    out = fuga("capacity", "small", "--forbid", "old", "--anti-affinity", "web").out

    assert "5 more small (1 vcpus) fit now, 2 of 3 hosts are open to them" in out
    assert "vcpus runs out first" in out
    assert "2 of 3 hosts" in out
    [call] = api.calls("GET", "/v1/capacity")
    assert call.query == {"vm_type": "small", "forbids": "old", "anti_affinity": "web"}


def test_capacity_says_whether_any_one_host_may_fail_and_what_is_missing(
    api: HttpApi, fuga: Fuga
) -> None:
    vm = {
        "vm": "0190a6b2-0000-7000-8000-000000000001",
        "why": "no_room",
        "nearest_host": "kvm-03",
        "missing": {"memory_mib": 1024},
    }
    lacking = {"name": "kvm-07", "known": True, "vms_lacking": 2, "vms": [vm, vm]}
    unknown = {"name": "kvm-08", "known": False, "vms_lacking": 0, "vms": []}
    answer = {"domain": "host", "domains": 9, "hold": 7, "not_known": 1, "immovable": 3}
    api.on("GET", "/v1/capacity/survival", {**answer, "lacking": [lacking, unknown]})

    out = fuga("capacity", "--survive", "host").out

    assert "7 of 9 failure domains (host) could fail without their VMs lacking room" in out
    assert "of 1 it is not known" in out
    assert "3 VMs cannot be elsewhere" in out
    [row] = [line for line in out.splitlines() if line.startswith("kvm-07")]
    assert row.split()[1:] == ["2", "0190a6b2", "no", "room", "kvm-03", "1024", "memory_mib"]
    assert "name a VM type, what may fail" in fuga("capacity").err


def test_groups_of_vms_are_a_table(api: HttpApi, fuga: Fuga) -> None:
    group = {
        "name": "web",
        "tenant": "a",
        "rule": "anti_affinity",
        "soft": True,
        "requests": ["web", "more"],
        "vms": 4,
        "hosts": {"h1": 2, "h2": 1},
    }
    api.on_list("/v1/vm-groups", group)

    output = fuga("vm-groups").out

    assert "anti-affinity, soft" in output
    assert "web, more" in output
    assert "h1 (2), h2" in output
