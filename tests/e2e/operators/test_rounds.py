"""What was decided, slot by slot, for an operator and for a tenant."""

from __future__ import annotations

import dataclasses
import zlib

import pytest

from controller.control_center.purge import purge_all
from controller.rounds.policy_process import PolicyProcess
from registry.admin import Periods
from registry.rounds import MeasuredDecision, NewShadowRound
from tests.e2e.conftest import Api
from tests.e2e.slots import CHOICE, run_slot
from tests.problems import places, the_problem
from tests.raw_sql import RawSql
from tests.register import ON_ANY_DATABASE, add_host, take_lease


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
    for shown in (summary, detail):  # all of that is of everybody's VMs
        assert (shown["placed"], shown["left_out"], shown["dropped"], shown["work"]) == (None,) * 4
        assert (shown["timings"], shown["group_shares"], shown["prices"]) == ({}, [], None)


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
    measured = MeasuredDecision(placed=1, left_out=0, used={"vcpus": 0.1}, fair_distance=0.0)
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
    shown = api.operator.get("/v1/rounds/1").json()["shadow"]
    assert (shown["policy"], shown["first_policy"], shown["agreed"]) == ("first_fit", "fuga", 1)
    assert api.tenant_a.get("/v1/rounds/1").json()["shadow"] is None
    path, start = "/v1/shadow-rounds", shown["slot_start_at"]
    the_problem(api.tenant_a.get(path), 403, "forbidden")
    assert api.operator.get(path, params={"since": start}).json()["items"] == [shown]
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


def test_a_round_is_shown_move_by_move_to_an_operator(api: Api, decider: PolicyProcess):
    for name in ("h1", "h2"):
        add_host(api.registry, name, vcpus=4, memory_mib=16384, disk_gib=200)
    add_host(api.registry, "full", vcpus=0, memory_mib=1, disk_gib=1)
    ask(api, "a", 7)
    ask(api, "b", 7)
    run_slot(api.registry, decider)
    stored = api.operator.get("/v1/rounds/1").json()

    body = api.operator.get("/v1/rounds/1/game").json()

    assert (body["round"], body["policy"], body["identical"]) == (1, "fuga", True)
    assert (body["steps_left_out"], body["hosts_left_out"]) == (0, 0)
    assert sorted(host["name"] for host in body["hosts"]) == ["full", "h1", "h2"]
    begins, *_ = games = [step for step in body["steps"] if step["kind"] == "game"]
    assert len(games) == len(stored["games"])
    assert sorted(body["hosts"][each]["name"] for each in begins["order"]) == ["h1", "h2"]
    (first, second) = (s for s in body["steps"] if s["kind"] == "move" and s["game"] == 1)
    assert [first["host"], second["host"]] == begins["order"]
    for move in (first, second):
        (chosen,) = (each for each in move["combinations"] if each["chosen"])
        assert chosen["utility"] == max(each["utility"] for each in move["combinations"])
        assert chosen["utility"] == pytest.approx(chosen["fairness"] - chosen["skewness"])
    placed: dict[str, int] = {}
    for step in body["steps"]:
        for row in step["rows"]:
            owner = body["requests"][row["request"]]["tenant"]
            placed[owner] = placed.get(owner, 0) + row["count"]
    assert placed == {"a": 4, "b": 4}
    assert [(each["name"], each["after"]) for each in body["tenants"]] == [("a", 0.5), ("b", 0.5)]
    assert body["steps"][-1]["fair_distance"] == pytest.approx(stored["fair_distance"])


@ON_ANY_DATABASE
def test_of_a_long_game_the_first_steps_are_told_and_all_that_came_of_it(
    api: Api, decider: PolicyProcess
):
    for number in range(6):
        add_host(api.registry, f"h{number}", vcpus=4, memory_mib=16384, disk_gib=200)
    ask(api, "a", 30)
    run_slot(api.registry, decider)

    body = api.operator.get("/v1/rounds/1/game", params={"steps": 3}).json()

    assert [step["kind"] for step in body["steps"]] == ["game", "move", "move", "rest"]
    assert body["steps"][0]["moves"] == 6
    assert body["steps_left_out"] > 0
    assert sum(row["count"] for step in body["steps"] for row in step["rows"]) == 24
    wrong = api.operator.get("/v1/rounds/1/game", params={"steps": 2_001})
    assert places(the_problem(wrong, 422, "invalid")) == ["steps"]


@ON_ANY_DATABASE
def test_a_round_of_another_policy_has_no_moves(api: Api, decider: PolicyProcess):
    add_host(api.registry, "h1")
    ask(api, "a", 1)
    first_fit = dataclasses.replace(CHOICE, name="first_fit")
    run_slot(api.registry, decider, choice=first_fit)

    body = api.operator.get("/v1/rounds/1/game").json()

    assert (body["policy"], body["identical"]) == ("first_fit", True)
    assert [step["kind"] for step in body["steps"]] == ["rest"]


def test_another_policy_decides_a_stored_round_without_effect(api: Api, decider: PolicyProcess):
    add_host(api.registry, "h1", vcpus=4, memory_mib=16384, disk_gib=200)
    ask(api, "a", 4)
    ask(api, "b", 4)
    run_slot(api.registry, decider)
    before = api.operator.get("/v1/rounds").json()
    path = "/v1/rounds/1/second-policy"

    answer = api.operator.post(path, json={"policy": "first_fit"}).json()

    assert (answer["first_policy"], answer["policy"]) == ("fuga", "first_fit")
    assert (answer["first"]["placed"], answer["decided"]["placed"], answer["agreed"]) == (4, 4, 2)
    got = [
        (each["name"], each["placed_first"], each["placed_second"]) for each in answer["requests"]
    ]
    assert got == [("of-a", 2, 4), ("of-b", 2, 0)]
    shares = {each["tenant"]: (each["first"], each["second"]) for each in answer["shares"]}
    assert shares == {"a": (0.5, 1.0), "b": (0.5, 0.0)}
    assert api.operator.get("/v1/rounds").json() == before
    names = [each["name"] for each in api.operator.get("/v1/rounds/policies").json()["items"]]
    assert {"fuga", "first_fit", "best_fit_drfh"} <= set(names)
    unknown = the_problem(api.operator.post(path, json={"policy": "no_such"}), 422, "invalid")
    assert "first_fit" in unknown["detail"]
    body = {"policy": "fuga", "parameters": {"eta": 0}}
    assert "eta" in the_problem(api.operator.post(path, json=body), 422, "invalid")["detail"]
    the_problem(api.tenant_a.post(path, json={"policy": "first_fit"}), 403, "forbidden")


@ON_ANY_DATABASE
def test_games_and_policies_are_for_operators_and_few_at_a_time(api: Api, decider: PolicyProcess):
    add_host(api.registry, "h1")
    ask(api, "a", 1)
    run_slot(api.registry, decider)

    for path in ("/v1/rounds/1/game", "/v1/rounds/policies"):
        the_problem(api.tenant_a.get(path), 403, "forbidden")
    the_problem(api.operator.get("/v1/rounds/2/game"), 404, "not_found")
    places = api.app.state.services.games
    while places.acquire(blocking=False):
        pass
    the_problem(api.operator.get("/v1/rounds/1/game"), 503, "overloaded")


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
    the_problem(api.operator.get("/v1/rounds/1/game"), 410, "purged")

    assert (shown["placed"], shown["replayable"], shown["outcome"]) == (1, False, None)
    assert "FUGA_KEEP_INPUTS_DAYS" in problem["detail"]


@pytest.mark.parametrize(
    "damage", ["UPDATE round_inputs SET inputs = ?", "UPDATE round_inputs SET packed_outcome = ?"]
)
@pytest.mark.parametrize("left", [b"", b"\x78\x5e\x00", zlib.compress(b"{}"), zlib.compress(b"[")])
def test_a_round_whose_bytes_are_damaged_is_told_as_that(
    api: Api, decider: PolicyProcess, raw: RawSql, damage: str, left: bytes
):
    add_host(api.registry, "h1")
    ask(api, "a", 1)
    run_slot(api.registry, decider)
    raw.run(damage, left)

    for method, path, body in (
        ("GET", "/v1/rounds/1", None),
        ("POST", "/v1/rounds/1/replay", None),
        ("GET", "/v1/rounds/1/game", None),
        ("POST", "/v1/rounds/1/second-policy", {"policy": "first_fit"}),
    ):
        if (path, "inputs = ?" in damage) == ("/v1/rounds/1", True):
            continue  # of its inputs it shows names alone, where a round ended or kept something
        answer = api.operator.request(method, path, json=body)
        assert "round 1 cannot be read" in the_problem(answer, 410, "damaged")["detail"]

    [vm] = api.tenant_a.get("/v1/vms").json()["items"]
    shown = api.tenant_a.get(f"/v1/vms/{vm['id']}/explanation").json()
    assert shown["message"].endswith("the details of the game are damaged, and cannot be read")
    [summary] = api.operator.get("/v1/rounds").json()["items"]
    assert summary["placed"] == 1
