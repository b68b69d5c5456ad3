"""Why does it wait: every reason counted over hosts, for a tenant and for an operator."""

from __future__ import annotations

import json
from typing import Any

import pytest

from controller.rounds.policy_process import PolicyProcess
from registry.requests.requests import Requests
from tests.e2e.conftest import Api
from tests.e2e.slots import run_slot
from tests.integration.registry.test_images import add_image, upload_of
from tests.raw_sql import RawSql
from tests.register import add_host, add_tenant, add_vm_type, remove_vm, run_vm


def ask(api: Api, count: int, tenant: str = "a", **fields: Any) -> str:
    body = {"vm_type": "small", "count": count, "tenant": tenant, **fields}
    answer = api.operator.post("/v1/requests", json=body)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def explain(client: Any, request: str) -> dict[str, Any]:
    found: dict[str, Any] = client.get(f"/v1/requests/{request}/explanation").json()["waiting"]
    return found


def counted(waiting: dict[str, Any]) -> list[tuple[str, str | None, int, int, int | None]]:
    keys = ("kind", "what", "hosts", "only", "missing")
    return [tuple(each[key] for key in keys) for each in waiting["obstacles"]]


def test_every_reason_is_counted_over_hosts(api: Api, decider: PolicyProcess):
    add_host(api.registry, "full", vcpus=1, labels=("ssd", "zone=east"))
    add_host(api.registry, "plain", labels=("zone=east",))
    add_host(api.registry, "old", labels=("ssd", "old", "zone=east"))
    add_host(api.registry, "west", labels=("ssd", "zone=west"))
    closed = add_host(api.registry, "closed", labels=("ssd", "zone=east"))
    api.operator.patch(f"/v1/hosts/{closed.name}", json={"admin": "draining"})
    rules = {"forbids": ["old"], "zone": "east"}
    request = ask(api, 2, requires=["ssd"], rules=rules)

    run_slot(api.registry, decider)

    waiting = explain(api.operator, request)
    assert waiting["reason"] == "no_room"
    assert counted(waiting) == [
        ("closed", None, 1, 1, None),
        ("label", "ssd", 1, 1, None),
        ("forbidden_label", "old", 1, 1, None),
        ("zone", "east", 1, 1, None),
        ("resource", "vcpus", 1, 1, 1),
    ]
    assert [each["only_hosts"] for each in waiting["obstacles"]] == [
        ["closed"],
        ["plain"],
        ["old"],
        ["west"],
        ["full"],
    ]
    assert waiting["would_help"] == [
        "room on 1 host taking no VMs now: closed by an operator, or not answering",
        "room on 1 host without the label ssd",
        "room on 1 host with the label old",
        "room on 1 host outside zone east",
        "1 host short of vcpus alone, the nearest by 1",
    ]


def test_a_deleted_request_waits_for_nothing_and_says_what_is_removed(
    api: Api, decider: PolicyProcess
):
    add_host(api.registry, "h1", vcpus=1)
    request = ask(api, 2)
    run_slot(api.registry, decider)
    before = api.operator.get(f"/v1/requests/{request}/explanation").json()
    [placed] = [vm for vm in api.registry.vms.list().items if vm.assignment_id is not None]
    run_vm(api.registry, placed.assignment_id)
    api.operator.delete(f"/v1/requests/{request}")

    after = api.operator.get(f"/v1/requests/{request}/explanation").json()

    keys = ("wanted", "placed", "leaving")
    assert ([before[key] for key in keys], before["waiting"]["count"]) == ([2, 1, 0], 1)
    assert ([after[key] for key in keys], after["waiting"]) == ([0, 0, 1], None)


def test_hosts_that_fail_builds_are_a_reason_of_their_own(
    api: Api, decider: PolicyProcess, raw: RawSql
):
    host = add_host(api.registry, "h1")
    failed = ask(api, 1)
    run_slot(api.registry, decider, 1)
    [vm] = api.registry.vms.list().items
    assert vm.assignment_id is not None
    build = api.registry.assignments.claim_build(vm.assignment_id, "w1", 60)
    assert build is not None
    api.registry.assignments.record_failure(build.claim, "no such pool", transient=False)
    remove_vm(api.registry, vm.assignment_id)
    far = "2999-01-01 00:00:00.000000" + ("" if raw.dialect == "sqlite" else "+00")
    raw.run("UPDATE hosts SET backoff_until = ?", far)  # however long the test takes
    another = ask(api, 1, name="another")

    run_slot(api.registry, decider, 2)

    for request in (failed, another):
        waiting = explain(api.operator, request)
        assert waiting["reason"] == "failed_builds"
        assert counted(waiting) == [("failed_builds", None, 1, 1, None)]
        [obstacle] = waiting["obstacles"]
        assert obstacle["until"] == "2999-01-01T00:00:00+00:00"
        assert obstacle["only_hosts"] == [host.name]
        assert waiting["would_help"] == [
            "room on 1 host held back after failed builds, until 2999-01-01T00:00:00+00:00 at least"
        ]

    raw.run("UPDATE hosts SET backoff_until = NULL, failed_builds = 0")
    raw.run("UPDATE build_failures SET avoid_until = ?", far)
    run_slot(api.registry, decider, 3)

    waiting = explain(api.operator, failed)
    assert (waiting["reason"], waiting["obstacles"][0]["kind"]) == ("failed_builds", "closed_to_it")
    assert waiting["would_help"] == [
        "room on 1 host where its builds failed recently, until 2999-01-01T00:00:00+00:00 at least"
    ]


def test_groups_and_spreads_are_reasons_too(api: Api, decider: PolicyProcess):
    add_host(api.registry, "h1", vcpus=4, labels=("zone=east",))
    add_host(api.registry, "h2", vcpus=2, labels=("zone=west",))
    apart = ask(api, 3, rules={"anti_affinity": {"group": "web"}})
    together = ask(api, 5, rules={"affinity": {"group": "cache"}})
    run_slot(api.registry, decider)

    shown = {each[0]: each for each in counted(explain(api.tenant_a, apart))}
    assert shown["anti_affinity"][:3] == ("anti_affinity", "web", 2)
    shown = {each[0]: each for each in counted(explain(api.tenant_a, together))}
    assert shown["affinity"][:3] == ("affinity", "cache", 1)


def test_networks_and_quotas_are_reasons_too(api: Api, decider: PolicyProcess):
    add_host(api.registry, "reached")
    add_host(api.registry, "not-reached")
    add_host(api.registry, "reached-and-full", vcpus=1)
    two_addresses = {"cidr": "10.0.0.0/29", "excluded": ["10.0.0.3-10.0.0.6"]}
    hosts = {"reached": {"name": "lan"}, "reached-and-full": {"name": "lan"}}
    network = {"name": "lan", "hosts": hosts, "subnet": two_addresses}
    assert api.operator.post("/v1/networks", json=network).status_code == 201
    ask(api, 1, hosts=["reached-and-full"])
    some, none = ask(api, 3, network="lan"), ask(api, 2, min_count=2, network="lan")
    run_slot(api.registry, decider, 1)
    run_slot(api.registry, decider, 2)

    waiting = explain(api.operator, some)
    assert (waiting["reason"], waiting["count"]) == ("no_address", 1)
    assert waiting["share"]["held"] > 0
    assert counted(waiting) == [
        ("network", "lan", 1, 0, None),
        ("resource", "vcpus", 1, 0, 1),
        ("no_address", "lan", 3, 1, 1),
    ]
    assert waiting["would_help"] == ["more free addresses in network lan (1): room is on 1 host"]
    waiting = explain(api.tenant_a, none)
    assert (waiting["reason"], waiting["count"]) == ("no_address", 2)
    assert counted(waiting)[-1] == ("no_address", "lan", 2, 1, 2)  # of hosts at least 2
    assert all(each["only_hosts"] == [] for each in waiting["obstacles"])

    quota = {"limits": {"vms": 4, "vcpus": 4}, "over_quota": "wait"}
    assert api.operator.patch("/v1/tenants/a/quota", json=quota).status_code == 200
    beyond = ask(api, 2)
    run_slot(api.registry, decider, 3)

    waiting = explain(api.tenant_a, beyond)
    assert (waiting["reason"], waiting["count"]) == ("quota", 1)
    assert counted(waiting) == [
        ("resource", "vcpus", 1, 0, 1),
        ("quota", "vcpus of a", 2, 0, 1),
        ("quota", "vms of a", 2, 0, 1),
    ]
    api.operator.patch("/v1/tenants/a/quota", json={"limits": {"vcpus": None}})
    run_slot(api.registry, decider, 4)
    waiting = explain(api.tenant_a, beyond)
    assert counted(waiting)[-1] == ("quota", "vms of a", 2, 2, 1)
    assert waiting["would_help"] == ["1 more in the quota on vms of a: room is on at least 2 hosts"]


def test_a_vm_whose_image_is_not_on_its_host_says_so(api: Api, decider: PolicyProcess):
    add_host(api.registry, "h1")
    image = add_image(api.registry)
    request = ask(api, 1, image="debian")
    run_slot(api.registry, decider)
    path = f"/v1/requests/{request}/explanation"

    [vm] = api.tenant_a.get(path).json()["vms"]
    before = api.tenant_a.get(f"/v1/vms/{vm['vm']}/explanation").json()
    upload = upload_of(api.registry)
    api.registry.image_copies.record_volume(upload.claim, upload.volume)
    api.registry.image_copies.record_progress(upload.claim, 1000, 60)
    during = api.tenant_a.get(f"/v1/vms/{vm['vm']}/explanation").json()
    api.registry.image_copies.finish_upload(upload.claim)
    after = api.tenant_a.get(f"/v1/vms/{vm['vm']}/explanation").json()

    assert (vm["host"], vm["waits_for_image"]["image"]) == (api.alias("h1"), image.reference)
    assert before["message"].endswith(
        "created once image debian:1 is there: the upload has not begun"
    )
    assert f"1000 of {image.size_bytes} bytes uploaded" in during["message"]
    assert during["waits_for_image"]["state"] == "uploading"
    assert (after["waits_for_image"], "debian" in after["message"]) == (None, False)
    assert api.tenant_a.get(path).json()["vms"][0]["waits_for_image"] is None


def test_vms_of_a_held_image_say_what_they_wait_for(api: Api, decider: PolicyProcess, raw: RawSql):
    for number in (1, 2):
        add_host(api.registry, f"h{number}", vcpus=1)
    image = add_image(api.registry)
    placed = ask(api, 2, image="debian")
    run_slot(api.registry, decider, 1)
    add_host(api.registry, "h3")
    waiting = ask(api, 3, image="debian")
    for due in api.registry.assignments.send_due_tasks(resend_after_s=0):
        claimed = api.registry.image_copies.claim_upload(due.id, "w1", 60)
        assert claimed is not None
        api.registry.image_copies.record_volume(claimed.claim, claimed.volume)
        for _ in range(2):
            api.registry.hosts.record_miss(
                claimed.host.id, "silent", unreachable_after=2, down_after=9
            )

    run_slot(api.registry, decider, 2)

    explanation = explain(api.tenant_a, waiting)
    assert (explanation["reason"], explanation["count"]) == ("image_held", 3)
    assert "it waits until an operator releases the image" in explanation["message"]
    vms = api.tenant_a.get(f"/v1/requests/{placed}/explanation").json()["vms"]
    assert [vm["waits_for_image"]["held"] for vm in vms] == [True, True]
    vm = api.tenant_a.get(f"/v1/vms/{vms[0]['vm']}/explanation").json()
    assert "held because hosts stopped answering" in vm["message"]

    api.operator.post(f"/v1/images/{image.reference}/release")
    run_slot(api.registry, decider, 3)

    [*names] = [vm["host"] for vm in api.operator.get("/v1/vms").json()["items"]]
    assert names.count("h3") == 3


def test_a_tenant_is_told_nothing_of_others(api: Api, decider: PolicyProcess):
    add_tenant(api.registry, "rival-tenant", weight=3.0)
    add_vm_type(api.registry, "rival-type", vcpus=2)
    add_host(api.registry, "secret-host-one", vcpus=4)
    add_host(api.registry, "secret-host-two", vcpus=4)
    rules = {"anti_affinity": {"group": "rival-group"}}
    ask(api, 2, "rival-tenant", vm_type="rival-type", name="rival-request", rules=rules)
    mine = ask(api, 9, rules={"anti_affinity": {"group": "mine"}})

    run_slot(api.registry, decider)

    theirs = explain(api.operator, mine)
    assert "secret-host" in json.dumps(theirs)
    for path in (f"/v1/requests/{mine}/explanation", f"/v1/requests/{mine}", "/v1/requests"):
        text = api.tenant_a.get(path).text
        assert "secret" not in text
        assert "rival" not in text
    other = api.tenant_b.get(f"/v1/requests/{mine}/explanation")
    assert other.status_code == 404


def test_who_holds_more_than_is_fair_is_told(api: Api, decider: PolicyProcess):
    add_host(api.registry, "h1", vcpus=4, memory_mib=65536)
    first = ask(api, 4, "b")
    run_slot(api.registry, decider, 1)
    more, fair = ask(api, 2, "b"), ask(api, 2, "a")
    run_slot(api.registry, decider, 2)

    above, below = explain(api.tenant_b, more), explain(api.tenant_a, fair)

    assert above["share"] == {"held": 1.0, "fair": 1.0, "above_fair": False}
    assert below["share"]["held"] == 0.0
    assert below["would_help"] == ["at least 1 host short of vcpus alone, the nearest by 1 at most"]
    assert first


def test_how_many_more_fit_and_what_ends_first(api: Api, decider: PolicyProcess):
    add_host(api.registry, "h1", vcpus=4, labels=("zone=east", "ssd"))
    add_host(api.registry, "h2", vcpus=4, labels=("zone=east", "ssd"))
    add_host(api.registry, "h3", vcpus=64, memory_mib=8192, labels=("zone=west",))
    closed = add_host(api.registry, "h4", labels=("zone=north",))
    api.operator.patch(f"/v1/hosts/{closed.name}", json={"admin": "maintenance"})
    ask(api, 1, hosts=["h1"], rules={"anti_affinity": {"group": "web"}})
    run_slot(api.registry, decider)

    found = api.operator.get("/v1/capacity", params={"vm_type": "small"}).json()

    assert (found["fits"], found["hosts"], found["open"]) == (3 + 4 + 2, 4, 3)
    assert found["runs_out_first"] == "vcpus"
    assert found["demand"] == {"vcpus": 1, "memory_mib": 3072, "disk_gib": 15}
    rows = [
        (each["labels"], each["hosts"], each["open"], each["fits"], each["runs_out_first"])
        for each in found["classes"]
    ]
    assert rows == [
        (["ssd", "zone=east"], 2, 2, 7, "vcpus"),
        (["zone=west"], 1, 1, 2, "memory_mib"),
        (["zone=north"], 1, 0, 0, None),
    ]

    def fits(client: Any = api.operator, **query: Any) -> int:
        answer = client.get("/v1/capacity", params={"vm_type": "small", **query})
        assert answer.status_code == 200, answer.text
        return int(answer.json()["fits"])

    assert fits(requires=["ssd"]) == 7
    assert fits(forbids=["ssd"]) == 2
    assert fits(zone="west") == 2
    assert fits(hosts=["h2"]) == 4
    assert fits(anti_affinity="web", tenant="a") == 2
    assert fits(anti_affinity="other") == 3
    query = {"vm_type": "small", "anti_affinity": "other"}
    apart = api.operator.get("/v1/capacity", params=query).json()
    assert apart["runs_out_first"] is None  # the group ends before any resource
    assert fits(api.tenant_a, anti_affinity="web") == 2
    assert fits(api.tenant_b, anti_affinity="web") == 2  # of three
    assert fits(affinity="cache") == 4
    assert fits(spread="zone") == 4  # of five, two would be due in the north


def test_what_fits_is_counted_with_what_a_vm_takes_beyond_its_type(api: Api):
    add_host(api.registry, "h1", memory_mib=9216)
    query = {"vm_type": "small"}
    assert api.operator.get("/v1/capacity", params=query).json()["fits"] == 3

    api.registry.resources.set_overhead("memory_mib", 64, actor="test")

    found = api.operator.get("/v1/capacity", params=query).json()
    assert (found["fits"], found["demand"]["memory_mib"]) == (2, 3136)


def test_what_cannot_be_asked_of_capacity(api: Api):
    unknown = api.tenant_a.get("/v1/capacity", params={"vm_type": "none-such"})
    nameless = api.tenant_a.get("/v1/capacity")
    others = api.tenant_a.get("/v1/capacity", params={"vm_type": "small", "tenant": "b"})

    assert unknown.status_code == 404
    assert nameless.status_code == 422
    assert others.status_code == 403
    empty = api.tenant_a.get("/v1/capacity", params={"vm_type": "small"}).json()
    assert (empty["fits"], empty["runs_out_first"], empty["classes"]) == (0, None, [])


def test_the_place_in_line_is_not_looked_for_among_all_that_ever_was(
    api: Api, monkeypatch: pytest.MonkeyPatch
):
    body = {"vm_type": "small", "count": 1}
    for _ in range(5):
        over = api.tenant_a.post("/v1/requests", json=body).json()
        api.tenant_a.delete(f"/v1/requests/{over['id']}")
    ids = [api.tenant_a.post("/v1/requests", json=body).json()["id"] for _ in range(2)]
    read: list[object] = []
    listed = Requests.list

    def reading(*given: Any, **more: Any) -> Any:
        page = listed(*given, **more)
        read.extend(page.items)
        return page

    monkeypatch.setattr(Requests, "list", reading)

    answer = api.tenant_a.get(f"/v1/requests/{ids[1]}/explanation").json()

    assert answer["order"] == 2
    assert len(read) <= 2
