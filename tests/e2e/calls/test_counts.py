"""How many VMs and requests there are, and lists by a part of a name."""

from __future__ import annotations

import threading
from typing import Any

import httpx
import pytest

from controller.rest import create_app
from tests.e2e.conftest import Api
from tests.register import add_host, add_request, place, run_vm, take_lease
from tests.servers.serving import served


def test_vms_are_counted_by_type_and_state_and_a_tenant_counts_its_own(api: Api) -> None:
    registry = api.registry
    host, lease = add_host(registry, "h1"), take_lease(registry)
    placed = place(registry, add_request(registry, 3, name="web"), host, 2, lease=lease)
    run_vm(registry, placed.assignment_ids[0])
    place(registry, add_request(registry, 1, tenant="b", spot=True), host, 1, lease=lease)

    of_a, of_all = (each.get("/v1/counts").json() for each in (api.tenant_a, api.operator))
    of_b = api.operator.get("/v1/counts", params={"tenant": "b"}).json()

    alike = {"vm_type": "small", "spot": False, "borrowed": False}
    assert sorted(of_a["vms"], key=str) == sorted(
        [
            {**alike, "state": "running", "placed": True, "count": 1},
            {**alike, "state": "absent", "placed": True, "count": 1},
            {**alike, "state": "absent", "placed": False, "count": 1},
        ],
        key=str,
    )
    assert of_a["requests"] == [{"state": "partly_placed", "count": 1}]
    assert sum(each["count"] for each in of_all["vms"]) == 4
    assert [(each["spot"], each["count"]) for each in of_b["vms"]] == [(True, 1)]
    assert api.tenant_a.get("/v1/counts", params={"tenant": "b"}).status_code == 403


def test_vms_of_a_silent_host_are_counted_as_unknown(api: Api) -> None:
    registry = api.registry
    host, lease = add_host(registry, "h1"), take_lease(registry)
    placed = place(registry, add_request(registry, 1), host, 1, lease=lease)
    run_vm(registry, placed.assignment_ids[0])
    registry.hosts.record_miss(host.id, "no answer", unreachable_after=1, down_after=1)

    (shown,) = api.operator.get("/v1/counts").json()["vms"]

    assert (shown["state"], shown["count"]) == ("unknown", 1)


def test_lists_are_narrowed_by_a_part_of_the_name_and_nothing_in_it_is_a_pattern(api: Api) -> None:
    registry = api.registry
    for name in ("kvm-01", "kvm-02", "other_1"):
        add_host(registry, name)
    add_request(registry, 2, name="web")
    add_request(registry, 1, name="db")

    def names(path: str, search: str) -> list[str]:
        found = api.operator.get(f"/v1/{path}", params={"search": search}).json()["items"]
        return [each["name"] for each in found]

    assert names("hosts", "vm-0") == ["kvm-01", "kvm-02"]
    assert names("hosts", "r_1") == ["other_1"]
    assert names("hosts", "m_0") == []  # no pattern
    assert names("vms", "eb-2") == ["web-2"]
    assert names("requests", "d") == ["db"]
    assert names("tenants", "a") == ["a"]
    assert api.operator.get("/v1/hosts", params={"search": "%"}).status_code == 422


@pytest.mark.parametrize(
    ("path", "part", "name"),
    [
        ("host-map", "hosts", "map"),
        ("shares", "cluster_queries", "accounts"),
        ("counts", "cluster_queries", "counts"),
    ],
)
def test_many_who_ask_at_once_for_what_costs_much_share_its_making(
    api: Api, monkeypatch: pytest.MonkeyPatch, path: str, part: str, name: str
) -> None:
    made: list[None] = []
    reads = type(getattr(api.registry, part))
    whole = getattr(reads, name)

    def counted(*given: Any) -> Any:
        made.append(None)
        return whole(*given)

    monkeypatch.setattr(reads, name, counted)
    token = api.operator.headers["Authorization"]
    answers: list[int] = []
    with served(create_app(api.registry)) as url:

        def ask() -> None:
            headers = {"Authorization": token}
            answer = httpx.get(f"{url}/v1/{path}", headers=headers, timeout=120)
            answers.append(answer.status_code)

        threads = [threading.Thread(target=ask) for _ in range(16)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()

    assert answers == [200] * 16
    assert len(made) < 16


def test_a_tenant_and_an_operator_who_ask_at_once_are_told_their_own_shares(api: Api) -> None:
    found = {
        name: [each["name"] for each in client.get("/v1/shares").json()["items"]]
        for name, client in (("a", api.tenant_a), ("all", api.operator))
    }

    assert found == {"a": ["a"], "all": ["a", "b"]}
