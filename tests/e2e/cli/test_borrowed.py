"""`fuga request -n 2..4` against a real API: what is borrowed, shown, and ends for whom."""

from __future__ import annotations

import json
import shlex
from datetime import datetime

import pytest

from registry import Registry
from tests.docs.markdown import ROOT
from tests.e2e.conftest import Api, Fuga
from tests.integration.moves.test_room import DecidesHere, run
from tests.problems import places, the_problem
from tests.register import add_host, add_request, add_tenant, add_vm_type, run_vm


def test_borrowed_vms_are_requested_shown_and_given_back(register: Registry, fuga: Fuga) -> None:
    add_host(register, vcpus=4, memory_mib=8192)
    add_vm_type(register, vcpus=1, memory_mib=1024)
    for tenant in ("a", "b"):
        add_tenant(register, tenant)
    requested = fuga("request", "small", "-n", "1..4", "--name", "sweep", "--tenant", "b")
    assert "request sweep" in requested
    for at in (0, 60):
        run(register, at, decider=DecidesHere())
    for vm in register.vms.list(tenant="b").items:
        run_vm(register, vm.assignment_id)
    assert "1..4" in fuga("requests")
    assert fuga("vms").count("running, borrowed") == 3
    add_request(register, name="web")
    run(register, 120, decider=DecidesHere(), spot_grace_s=600)

    assert fuga("vms").count("running, borrowed until") == 1
    assert "borrowed    3 VMs, 1 due to end, the first at" in fuga("status", status=1)
    assert "for a/web" in fuga("explain", "sweep")
    assert "a/web" in fuga("rounds", "show", "3")
    assert "1..4 -> 2..3" in fuga("scale", "sweep", "-n", "2..3")
    assert "2..3 -> 2 VMs" in fuga("scale", "sweep", "-n", "2")
    [found] = json.loads(fuga("requests", "--tenant", "b", "-o", "json"))
    assert (found["max_count"], found["vms_borrowed"]) == (None, 0)


def typed_below(document: str, heading: str, containing: str = "") -> list[list[str]]:
    """Return the words of the commands that a section of a guide shows."""
    text = (ROOT / "docs" / document).read_text("utf-8")
    section = text.split(f"\n{heading}\n")[1].split("\n#")[0]
    lines = [line[2:] for line in section.splitlines() if line.startswith("$ fuga ")]
    return [shlex.split(line, comments=True)[1:] for line in lines if containing in line]


def test_the_guides_examples_of_borrowed_vms_do_what_they_show(
    register: Registry, fuga: Fuga
) -> None:
    add_host(register, vcpus=12, memory_mib=65_536)
    add_vm_type(register, vcpus=1, memory_mib=1024)
    add_tenant(register, "team-a")
    request, show, scale = typed_below("tenants.md", "### Borrowed VMs")
    [price] = typed_below("operators/usage.md", "## Prices", "borrowed:")
    fuga("price", "currency", "EUR")
    fuga(*[word for word in price if not word.startswith(("--from", "20"))])
    fuga(*request, "--tenant", "team-a")
    for at in (0, 60):
        run(register, at, decider=DecidesHere())
    for vm in register.vms.list().items:
        run_vm(register, vm.assignment_id)

    guide = (ROOT / "docs" / "tenants.md").read_text("utf-8")
    shown, reported = (
        next(line.split() for line in text.splitlines() if "sweep  team-a" in line)
        for text in (guide, fuga(*show))
    )
    assert reported[1 : len(shown) - 1] == shown[1:-1]  # but for the id and the age
    assert ["running,", "borrowed", "8"] in [
        line.split()[1:] for line in fuga("counts").splitlines()
    ]
    usage = json.loads(fuga("usage", "-o", "json"))["items"]
    priced = {each["resource"]: each["cost"] is not None for each in usage}
    assert (priced["vcpus"], priced["borrowed:vcpus"]) == (False, True)
    fuga(*scale)
    [found] = register.requests.list(name="sweep").items
    assert (found.count, found.max_count) == (4, 8)


def test_a_count_that_is_no_number_is_refused(fuga: Fuga) -> None:
    refused = fuga("request", "small", "-n", "4-20", status=2)

    assert "wanted a number of VMs" in " ".join(refused.replace("│", " ").split())


def test_a_tenant_does_not_see_for_whom_of_others_its_borrowed_vm_ends(api: Api) -> None:
    add_host(api.registry, vcpus=4, memory_mib=8192)
    body = {"vm_type": "small", "count": 1, "max_count": 9, "name": "sweep"}
    key = {"Idempotency-Key": "one"}
    made = api.tenant_b.post("/v1/requests", json=body, headers=key)
    assert (made.status_code, made.json()["max_count"]) == (201, 9)
    again = api.tenant_b.post("/v1/requests", json=body, headers=key)
    assert again.json()["id"] == made.json()["id"]
    for at in (0, 60):
        run(api.registry, at, decider=DecidesHere())
    for vm in api.registry.vms.list(tenant="b").items:
        run_vm(api.registry, vm.assignment_id)
    api.tenant_a.post("/v1/requests", json={"vm_type": "small", "count": 1, "name": "web"})
    run(api.registry, 120, decider=DecidesHere(), spot_grace_s=600)

    vms = api.tenant_b.get("/v1/vms").json()["items"]
    ahead = api.registry.cluster_queries.forecast_inputs()

    [ending] = [vm for vm in vms if vm["ends_at"] is not None]
    assert (ending["borrowed"], ending["ending_for"]) == (True, None)
    # Estimates know that it ends, and take no borrowed VM for one that somebody requested.
    announced = datetime.fromisoformat(ending["ends_at"])
    assert [each.ends_at for each in ahead.living if each.ends_at is not None] == [announced]
    assert sum(each.count for each in ahead.came) == 2
    [event] = api.tenant_b.get("/v1/events", params={"kind": "spot_ending"}).json()["items"]
    assert event["data"].keys() == {"ends_at", "round"}
    [requested] = api.operator.get("/v1/rounds/2/game").json()["requests"]
    assert (requested["name"], requested["count"], requested["borrowed"]) == ("sweep", 8, True)
    path = f"/v1/requests/{made.json()['id']}"
    changed = api.tenant_b.patch(path, json={"max_count": 2})
    assert (changed.status_code, changed.json()["max_count"]) == (200, 2)


@pytest.mark.parametrize(
    ("other", "place"),
    [
        ({"spot": True}, "#/max_count"),
        ({"rules": {"spread": "zone"}}, "#/max_count"),
        ({"max_count": 1}, "#/max_count"),
    ],
)
def test_what_does_not_go_with_borrowed_vms_is_refused(api: Api, other, place) -> None:
    body = {"vm_type": "small", "count": 2, "max_count": 4, "name": "sweep"} | other

    refused = api.tenant_b.post("/v1/requests", json=body)

    assert places(the_problem(refused, 422, "invalid")) == [place]
