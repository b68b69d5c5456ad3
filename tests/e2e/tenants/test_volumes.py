"""A tenant keeps data on volumes, which outlive its VMs."""

from __future__ import annotations

import uuid
from typing import Any

import httpx
import pytest

from registry.volumes import MAX_SIZE_GIB
from tests.e2e.conftest import Api
from tests.e2e.moving import a_host_of_guests, a_running_vm
from tests.e2e.volumes import carry_out, claim_step
from tests.problems import places, the_problem
from tests.register import ON_ANY_DATABASE, remove_vm

pytestmark = ON_ANY_DATABASE


def create(client: httpx.Client, name: str = "data", size_gib: int = 10, **fields: Any) -> Any:
    """Create a volume and return it."""
    answer = client.post("/v1/volumes", json={"name": name, "size_gib": size_gib, **fields})
    assert answer.status_code == 201, answer.text
    return answer.json()


def names(client: httpx.Client, **query: Any) -> list[str]:
    answer = client.get("/v1/volumes", params=query)
    assert answer.status_code == 200, answer.text
    return [each["name"] for each in answer.json()["items"]]


@pytest.fixture
def vm(api: Api) -> str:
    """A VM of tenant a that runs on host kvm-1."""
    return a_running_vm(api.registry, a_host_of_guests(api.registry, "kvm-1", disk_gib=100))


def test_a_volume_is_created_attached_detached_and_removed(api: Api, vm: str) -> None:
    made = create(api.tenant_a)
    path = f"/v1/volumes/{made['id']}"

    assert (made["state"], made["host"], made["vm"]) == ("unplaced", None, None)
    assert made["serial"] == uuid.UUID(made["id"]).hex[:20]
    attaching = api.tenant_a.post(f"{path}/attach", json={"vm": vm})
    assert attaching.status_code == 202
    assert attaching.json()["state"] == "creating"
    assert carry_out(api.registry, made["id"]) == "attached"
    attached = api.tenant_a.get(path).json()
    assert (attached["state"], attached["vm_id"]) == ("attached", vm)
    assert attached["host"] == api.alias("kvm-1")
    assert api.operator.get(path).json()["host"] == "kvm-1"

    refused = the_problem(api.tenant_a.delete(path), 409, "conflict")
    assert "detach it first (`fuga volume detach data`)" in refused["detail"]
    assert api.tenant_a.post(f"{path}/detach").json()["state"] == "detaching"
    assert carry_out(api.registry, made["id"]) == "available"

    removing = api.tenant_a.delete(path)
    assert (removing.status_code, removing.json()["state"]) == (202, "removing")
    assert carry_out(api.registry, made["id"]) == "removed"
    assert api.tenant_a.get(path).json()["removed_at"] is not None
    assert names(api.tenant_a) == []
    assert names(api.tenant_a, state="removed") == ["data"]


def test_a_volume_without_a_file_is_removed_at_once(api: Api) -> None:
    made = create(api.tenant_a)

    assert api.tenant_a.delete(f"/v1/volumes/{made['id']}").json()["state"] == "removed"
    assert api.tenant_a.delete(f"/v1/volumes/{made['id']}").json()["state"] == "removed"
    assert create(api.tenant_a)["id"] != made["id"]


def test_a_protected_volume_is_not_removed_until_that_is_taken_back(api: Api) -> None:
    path = f"/v1/volumes/{create(api.tenant_a)['id']}"
    the_problem(api.tenant_b.patch(path, json={"protected": True}), 404, "not_found")

    assert api.tenant_a.patch(path, json={"protected": True}).json()["protected"]

    problem = the_problem(api.tenant_a.delete(path), 409, "conflict")
    assert "`fuga volume set data --no-protected`" in problem["detail"]
    [event] = api.tenant_a.get("/v1/events", params={"kind": "volume_updated"}).json()["items"]
    assert event["data"] == {"name": "data", "protected": True}
    assert not api.tenant_a.patch(path, json={"protected": False}).json()["protected"]
    assert api.tenant_a.delete(path).json()["state"] == "removed"
    the_problem(api.tenant_a.patch(path, json={"protected": True}), 409, "conflict")


def test_another_tenants_volume_does_not_exist(api: Api, vm: str) -> None:
    foreign = f"/v1/volumes/{create(api.tenant_a)['id']}"
    unknown = f"/v1/volumes/{uuid.uuid4()}"

    def answers(path: str) -> list[tuple[int, str]]:
        found = [
            api.tenant_b.get(path),
            api.tenant_b.delete(path),
            api.tenant_b.post(f"{path}/attach", json={"vm": vm}),
            api.tenant_b.post(f"{path}/detach"),
        ]
        key = path.rpartition("/")[2]
        return [
            (each.status_code, the_problem(each, 404, "not_found")["detail"].replace(key, "ID"))
            for each in found
        ]

    assert answers(foreign) == answers(unknown)
    assert names(api.tenant_b) == []
    assert names(api.tenant_b, vm=vm) == []
    the_problem(api.tenant_b.get("/v1/volumes", params={"tenant": "a"}), 403, "forbidden")
    body = {"name": "data", "size_gib": 1, "tenant": "a"}
    the_problem(api.tenant_b.post("/v1/volumes", json=body), 403, "forbidden")


def test_a_vm_of_another_tenant_is_as_unknown_as_one_that_is_not_there(api: Api, vm: str) -> None:
    path = f"/v1/volumes/{create(api.tenant_b)['id']}/attach"

    for client in (api.tenant_b, api.operator):
        details = []
        for key in (vm, str(uuid.uuid4())):
            problem = the_problem(client.post(path, json={"vm": key}), 422, "invalid")
            assert places(problem) == ["#/vm"]
            details.append(problem["detail"].replace(key, "ID"))
        assert details[0] == details[1]


def test_an_operator_names_the_owner(api: Api) -> None:
    body = {"name": "data", "size_gib": 1}

    for tenant in ({}, {"tenant": "nobody"}):
        refused = api.operator.post("/v1/volumes", json=body | tenant)
        assert places(the_problem(refused, 422, "invalid")) == ["#/tenant"]
    assert create(api.operator, tenant="b")["tenant"] == "b"
    assert names(api.tenant_b) == ["data"]


def test_names_are_unique_within_a_tenant(api: Api) -> None:
    create(api.tenant_a)
    create(api.tenant_b)

    again = api.tenant_a.post("/v1/volumes", json={"name": "data", "size_gib": 1})
    the_problem(again, 409, "duplicate")


@pytest.mark.parametrize("size", [0, -1, 1.5, "10", None, True, MAX_SIZE_GIB + 1, 2**63])
def test_a_size_is_a_whole_number_of_gibibytes_in_bounds(api: Api, size: object) -> None:
    refused = api.tenant_a.post("/v1/volumes", json={"name": "data", "size_gib": size})

    assert places(the_problem(refused, 422, "invalid")) == ["#/size_gib"]


def test_volumes_are_found_by_name_part_of_a_name_vm_host_and_state(api: Api, vm: str) -> None:
    made = create(api.tenant_a, "data")
    create(api.tenant_a, "logs")
    create(api.tenant_b, "data")
    api.tenant_a.post(f"/v1/volumes/{made['id']}/attach", json={"vm": vm})

    assert names(api.operator) == ["data", "logs", "data"]
    assert names(api.tenant_a) == ["data", "logs"]
    assert names(api.tenant_a, name="logs") == ["logs"]
    assert names(api.tenant_a, search="OG") == ["logs"]
    assert names(api.tenant_a, vm=vm) == ["data"]
    assert names(api.tenant_a, host=api.alias("kvm-1")) == ["data"]
    assert names(api.operator, host="kvm-1") == ["data"]
    assert names(api.operator, state="unplaced") == ["logs", "data"]
    assert names(api.operator, tenant="b") == ["data"]
    the_problem(api.tenant_a.get("/v1/volumes", params={"host": "kvm-1"}), 422, "invalid")
    page = api.operator.get("/v1/volumes", params={"limit": 2}).json()
    assert names(api.operator, cursor=page["next"]) == ["data"]


def test_a_repeated_call_changes_nothing(api: Api, vm: str) -> None:
    key = {"Idempotency-Key": "k1"}
    body = {"name": "data", "size_gib": 10}
    first = api.tenant_a.post("/v1/volumes", json=body, headers=key)
    again = api.tenant_a.post("/v1/volumes", json=body, headers=key)
    attach = f"/v1/volumes/{first.json()['id']}/attach"

    assert (again.status_code, again.json()) == (201, first.json())
    states = [api.tenant_a.post(attach, json={"vm": vm}).json()["state"] for _ in range(2)]
    assert states == ["creating", "creating"]
    carry_out(api.registry, first.json()["id"])
    replayed = api.tenant_a.post(attach, json={"vm": vm}, headers={"Idempotency-Key": "k2"})
    assert replayed.json()["host"] == api.alias("kvm-1")


def test_a_host_without_room_refuses_the_volume(api: Api, vm: str) -> None:
    made = create(api.tenant_a, size_gib=101)

    refused = api.tenant_a.post(f"/v1/volumes/{made['id']}/attach", json={"vm": vm})

    problem = the_problem(refused, 409, "conflict")
    assert "has no room for 101 GiB more" in problem["detail"]
    assert "kvm-1" not in refused.text
    assert api.tenant_a.get(f"/v1/volumes/{made['id']}").json()["state"] == "unplaced"


def test_a_host_whose_pool_is_lost_is_retired_with_its_volumes(api: Api, vm: str) -> None:
    made = create(api.tenant_a)
    api.tenant_a.post(f"/v1/volumes/{made['id']}/attach", json={"vm": vm})
    carry_out(api.registry, made["id"])
    assignment_id = api.registry.vms.get(uuid.UUID(vm)).assignment_id
    assert assignment_id is not None
    api.tenant_a.delete(f"/v1/vms/{vm}")
    remove_vm(api.registry, assignment_id)

    refused = the_problem(api.operator.delete("/v1/hosts/kvm-1"), 409, "conflict")
    assert "`fuga host remove kvm-1 --volumes-lost`" in refused["detail"]
    query = {"volumes_lost": "true"}
    assert api.operator.delete("/v1/hosts/kvm-1", params=query).json()["admin"] == "retired"

    assert api.tenant_a.get(f"/v1/volumes/{made['id']}").json()["state"] == "removed"


def test_a_tenant_reads_errors_without_names_of_machines(api: Api, vm: str) -> None:
    made = create(api.tenant_a)
    path = f"/v1/volumes/{made['id']}"
    api.tenant_a.post(f"{path}/attach", json={"vm": vm})
    step = claim_step(api.registry, made["id"])
    others = f"fuga-{uuid.uuid4()}"
    error = f"cannot make /var/lib/fuga/data on kvm-1.example.org: no space left; used by {others}"
    api.registry.volume_steps.retry_later(step.claim, error, refused=True)

    assert api.operator.get(path).json()["last_error"] == error
    shown = api.tenant_a.get(path).json()["last_error"]
    assert "no space left" in shown
    assert "kvm-1" not in shown
    assert "/var" not in shown
    assert others not in shown


def test_events_name_the_volume_and_the_tenants_alias_of_the_host(api: Api, vm: str) -> None:
    made = create(api.tenant_a)
    api.tenant_a.post(f"/v1/volumes/{made['id']}/attach", json={"vm": vm})
    carry_out(api.registry, made["id"])

    events = api.tenant_a.get("/v1/events", params={"subject": "data"}).json()["items"]

    assert [each["to_state"] for each in events] == [None, "creating", "attaching", "attached"]
    assert {each["subject_name"] for each in events} == {"data"}
    assert {each["data"].get("host") for each in events} == {None, api.alias("kvm-1")}
    foreign = api.tenant_b.get("/v1/events").json()["items"]
    assert made["id"] not in {each["subject_id"] for each in foreign}
    the_problem(api.tenant_b.get("/v1/events", params={"subject": "data"}), 422, "invalid")


def test_a_read_only_token_changes_no_volume(api: Api, vm: str) -> None:
    path = f"/v1/volumes/{create(api.tenant_a)['id']}"
    _, secret = api.registry.tokens.create("tenant", "a", "reads", read_only=True, actor="cli")
    reader = api.client(secret)

    assert names(reader) == ["data"]
    for refused in (
        reader.post("/v1/volumes", json={"name": "other", "size_gib": 1}),
        reader.post(f"{path}/attach", json={"vm": vm}),
        reader.post(f"{path}/detach"),
        reader.delete(path),
    ):
        the_problem(refused, 403, "forbidden")


def test_a_request_brings_volumes_and_creates_new_ones(api: Api, vm: str) -> None:
    create(api.tenant_a)
    create(api.tenant_b, "theirs")
    new = [{"name": "scratch", "size_gib": 5}]
    body = {"vm_type": "small", "count": 1, "name": "db", "volumes": ["data"], "new_volumes": new}

    wrong = api.tenant_a.post("/v1/requests", json={**body, "volumes": ["theirs"]})
    assert places(the_problem(wrong, 422, "invalid")) == ["#/volumes"]
    key = {"Idempotency-Key": "once"}
    made = [api.tenant_a.post("/v1/requests", json=body, headers=key) for _ in range(2)]

    assert [each.status_code for each in made] == [201, 201]
    assert made[0].json() == made[1].json()
    assert (made[0].json()["volumes"], made[0].json()["new_volumes"]) == (["data"], new)
    found = api.tenant_a.get("/v1/volumes").json()["items"]
    assert [(each["name"], each["waiting_vm"]) for each in found] == [
        ("data", "db-1"),
        ("scratch", "db-1"),
    ]
    refused = the_problem(api.tenant_a.delete(f"/v1/volumes/{found[0]['id']}"), 409, "conflict")
    assert "VM db-1 waits for a host with it" in refused["detail"]
    api.tenant_a.delete(f"/v1/requests/{made[0].json()['id']}")
    assert names(api.tenant_a) == ["data"]
