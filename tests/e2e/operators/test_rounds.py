"""What was decided, slot by slot, for an operator and for a tenant."""

from __future__ import annotations

import pytest

from controller.centre.purge import purge_all
from controller.rounds.policy_process import PolicyProcess
from registry.operating import Periods
from registry.rounds import Decided, NewShadowRound
from tests.e2e.conftest import Api
from tests.e2e.slots import run_slot
from tests.problems import places, the_problem
from tests.raw_sql import RawSql
from tests.register import add_host, take_lease


def ask(api: Api, tenant: str, count: int) -> str:
    body = {"vm_type": "small", "count": count, "tenant": tenant, "name": f"of-{tenant}"}
    return str(api.operator.post("/v1/requests", json=body).json()["id"])


def test_before_the_first_slot_there_are_no_rounds(api: Api):
    assert api.operator.get("/v1/rounds").json() == {"items": [], "next": None}
    the_problem(api.operator.get("/v1/rounds/1"), 404, "not_found")
    the_problem(api.operator.post("/v1/rounds/1/replay"), 404, "not_found")


@pytest.mark.parametrize("number", ["0", "-1", "x", str(2**63), "1.5"])
def test_a_number_that_no_round_can_have_is_refused(api: Api, number: str):
    answer = api.operator.get(f"/v1/rounds/{number}")

    assert places(the_problem(answer, 422, "invalid")) == ["number"]


def test_from_a_request_to_a_round_and_its_explanations(api: Api, decider: PolicyProcess):
    add_host(api.registry, "h1", vcpus=4, memory_mib=16384, disk_gib=200)
    mine, theirs = ask(api, "a", 3), ask(api, "b", 3)

    run_slot(api.registry, decider)

    [summary] = api.operator.get("/v1/rounds").json()["items"]
    assert (summary["policy"], summary["decided_by"]) == ("fuga", "policy")
    assert (summary["placed"], summary["left_out"]) == (4, 2)
    assert [share["tenant"] for share in summary["shares"]] == ["a", "b"]
    detail = api.operator.get(f"/v1/rounds/{summary['number']}").json()
    assert {**detail, **summary} == detail
    assert detail["outcome"]
    assert "inputs" not in detail

    placed = [vm for vm in api.tenant_a.get("/v1/vms").json()["items"] if vm["host"]]
    assert len(placed) == 2
    assert placed[0]["assignment_state"] == "reserved"
    why = api.tenant_a.get(f"/v1/vms/{placed[0]['id']}/explanation").json()
    assert (why["host"], why["round"]) == (api.alias("h1"), summary["number"])
    assert why["message"]

    for client, nearest in ((api.operator, "h1"), (api.tenant_b, None)):
        waits = client.get(f"/v1/requests/{theirs}/explanation").json()["waiting"]
        assert waits["count"] == 1
        assert waits["reason"] == "no_room"
        assert waits["shortages"][0]["resource"] == "vcpus"
        assert waits["shortages"][0]["nearest_host"] == nearest
        stored = client.get(f"/v1/requests/{theirs}").json()["waiting"]["detail"]
        assert stored["shortages"][0]["nearest_host"] == nearest
    assert api.tenant_a.get(f"/v1/requests/{mine}").json()["state"] == "partly_placed"
    ready = api.stranger.get("/readyz").json()
    assert ready["last_round"] == summary["number"]
    assert ready["last_round_age_s"] > 0


def test_a_tenant_sees_its_own_share_and_not_the_outcome(api: Api, decider: PolicyProcess):
    add_host(api.registry, "h1")
    ask(api, "a", 1)
    ask(api, "b", 1)
    run_slot(api.registry, decider)

    [summary] = api.tenant_a.get("/v1/rounds").json()["items"]
    detail = api.tenant_a.get(f"/v1/rounds/{summary['number']}").json()

    assert [share["tenant"] for share in summary["shares"]] == ["a"]
    assert [share["tenant"] for share in detail["shares"]] == ["a"]
    assert detail["outcome"] is None
    for told in (summary, detail):  # all of that is of everybody's VMs
        assert (told["placed"], told["left_out"], told["dropped"], told["work"]) == (None,) * 4
        assert (told["timings"], told["group_shares"], told["prices"]) == ({}, [], None)


def test_a_round_is_told_with_what_one_more_unit_would_have_brought(
    api: Api, decider: PolicyProcess, raw: RawSql
):
    add_host(api.registry, "h1", vcpus=4, memory_mib=16384, disk_gib=200, labels=("zone=east",))
    ask(api, "a", 3)
    ask(api, "b", 3)
    run_slot(api.registry, decider)

    [summary] = api.operator.get("/v1/rounds").json()["items"]

    prices = summary["prices"]
    assert (prices["resource"], prices["most"], prices["fair"]) == ("vcpus", 4, 4)
    assert (prices["of_fairness"], prices["error"], prices["classes_left_out"]) == (0, None, 0)
    [of_class] = prices["classes"]
    assert (of_class["labels"], of_class["hosts"]) == (["zone=east"], 1)
    assert of_class["room"] == {"vcpus": 4, "memory_mib": 16384, "disk_gib": 200}
    assert of_class["price"] == {"vcpus": 1, "memory_mib": 0, "disk_gib": 0}
    assert api.operator.get("/v1/rounds/1").json()["prices"] == prices

    raw.run("UPDATE rounds SET prices = NULL")  # as one from before

    assert api.operator.get("/v1/rounds/1").json()["prices"] is None


def test_capacity_is_told_beside_those_that_wait_and_are_owed_before(api: Api):
    add_host(api.registry, "h1", vcpus=4, memory_mib=16384, disk_gib=200)

    def told(client, **params) -> tuple[int, int]:
        found = client.get("/v1/capacity", params={"vm_type": "small", **params}).json()
        return found["fits"], found["in_turn"]

    assert told(api.operator) == (4, 4)

    ask(api, "a", 3)

    assert told(api.operator) == (4, 1)  # after all that wait
    assert told(api.operator, tenant="a") == (4, 1)  # after its own
    assert told(api.operator, tenant="b") == (4, 2)  # in turns with the other tenant
    assert told(api.tenant_b) == (2, 2)  # in steps


def test_what_a_second_policy_would_have_done_is_for_operators(api: Api, decider: PolicyProcess):
    add_host(api.registry, "h1")
    ask(api, "a", 1)
    run_slot(api.registry, decider)
    before = api.operator.get("/v1/rounds/1").json()
    measured = Decided(placed=1, left_out=0, used={"vcpus": 0.1}, fair_distance=0.0)
    shadow = NewShadowRound(
        round=1,
        policy="first_fit",
        parameters={},
        seconds=0.01,
        decided=measured,
        first=measured,
        agreed=1,
        shares=({"tenant": "a", "before": 0.0, "first": 0.1, "second": 0.1},),
    )

    api.registry.shadows.add(shadow, take_lease(api.registry))

    assert before["shadow"] is None
    told = api.operator.get("/v1/rounds/1").json()["shadow"]
    assert (told["policy"], told["first_policy"], told["agreed"]) == ("first_fit", "fuga", 1)
    assert api.tenant_a.get("/v1/rounds/1").json()["shadow"] is None
    path, start = "/v1/shadow-rounds", told["slot_start_at"]
    the_problem(api.tenant_a.get(path), 403, "forbidden")
    assert api.operator.get(path, params={"since": start}).json()["items"] == [told]
    assert api.operator.get(path, params={"until": start}).json()["items"] == []
    wrong = api.operator.get(path, params={"since": "2026-02-30T00:00:00Z"})
    assert places(the_problem(wrong, 422, "invalid")) == ["since"]


def test_a_round_is_replayed_for_an_operator(api: Api, decider: PolicyProcess):
    add_host(api.registry, "h1")
    ask(api, "a", 1)
    run_slot(api.registry, decider)

    replayed = api.operator.post("/v1/rounds/1/replay").json()

    assert replayed["round"] == 1
    assert replayed["identical"] is True
    assert replayed["differences"] == []
    the_problem(api.tenant_a.post("/v1/rounds/1/replay"), 403, "forbidden")


def test_rounds_come_newest_first_page_by_page(api: Api, decider: PolicyProcess):
    add_host(api.registry, "h1")
    for number in range(1, 4):
        api.tenant_a.post("/v1/requests", json={"vm_type": "small", "count": 1})
        run_slot(api.registry, decider, number)

    first = api.operator.get("/v1/rounds", params={"limit": 2}).json()
    rest = api.operator.get("/v1/rounds", params={"cursor": first["next"]}).json()

    numbers = [each["number"] for each in first["items"] + rest["items"]]
    assert numbers == [3, 2, 1]
    assert rest["next"] is None


def test_a_host_with_vms_is_not_retired(api: Api, decider: PolicyProcess):
    add_host(api.registry, "h1")
    request = ask(api, "a", 1)
    run_slot(api.registry, decider)

    problem = the_problem(api.operator.delete("/v1/hosts/h1"), 409, "conflict")

    assert problem["detail"]
    api.tenant_a.delete(f"/v1/requests/{request}")
    assert api.operator.delete("/v1/hosts/h1").json()["admin"] == "retired"


def test_a_round_whose_inputs_were_purged_is_shown_and_not_replayed(
    api: Api, decider: PolicyProcess, raw: RawSql
):
    add_host(api.registry, "h1")
    ask(api, "a", 1)
    run_slot(api.registry, decider)
    assert api.operator.get("/v1/rounds/1").json()["replayable"] is True
    raw.run(f"UPDATE rounds SET created_at = {raw.before('now', '8 days')}")
    purge_all(api.registry, Periods())

    shown = api.operator.get("/v1/rounds/1").json()
    problem = the_problem(api.operator.post("/v1/rounds/1/replay"), 410, "purged")

    assert (shown["placed"], shown["replayable"], shown["outcome"]) == (1, False, None)
    assert "FUGA_KEEP_INPUTS_DAYS" in problem["detail"]
