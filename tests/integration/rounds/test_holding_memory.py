"""Rounds remember what tenants held while others waited: kept at commits, replayed from inputs."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from controller.queries.request_explanation import explain_request
from controller.rounds.inputs import read_round_inputs
from controller.rounds.replay import replay_round
from controller.session.json_shapes import ProofError
from controller.session.proofs import build_proof_document, parse_document, verify_chain
from registry import Registry
from registry.rounds import PastHolding
from tests.integration.moves.test_room import DecidesHere, run
from tests.readers import a_tenant, an_operator
from tests.register import (
    ACTOR,
    RawSql,
    add_host,
    add_request,
    add_tenant,
    add_vm_type,
    now,
    remove_vm,
    run_vm,
)

HALF_LIFE_S = 3600
MILLION = 10**6


@pytest.fixture
def contended(register: Registry) -> Registry:
    """A host of four cores that tenant a fills while b waits."""
    add_host(register, "h1", vcpus=4, memory_mib=8192)
    add_vm_type(register, vcpus=1, memory_mib=1024)
    for tenant in ("a", "b"):
        add_tenant(register, tenant)
    request = add_request(register, 4, tenant="a", name="full")
    a_round(register, 0)
    for vm in register.vms.list(request_id=request.id).items:
        run_vm(register, vm.assignment_id)
    add_request(register, 4, tenant="b", name="waits")
    a_round(register, 60)
    return register


def a_round(register: Registry, at: int, memory_s: int = HALF_LIFE_S):
    return run(register, at, decider=DecidesHere(), memory_s=memory_s)


def kept(register: Registry) -> dict[str, PastHolding]:
    names = {each.id: each.name for each in register.cluster_queries.accounts().tenants}
    return {names[owner]: each for owner, each in register.rounds.past_holdings().items()}


def let_time_pass(raw: RawSql, seconds: int) -> None:
    raw.run("UPDATE past_holdings SET at_us = at_us - ?", seconds * MILLION)


def past_of(register: Registry, number: int) -> list[float]:
    """Return the past vCPUs of each tenant in a round's inputs."""
    inputs = read_round_inputs(register.rounds.get(number))
    assert inputs.snapshot.memory is not None
    place = inputs.snapshot.resources.index("vcpus")
    return [past[place] / MILLION for past in inputs.snapshot.memory.past]


def test_a_tenant_is_charged_while_another_waits(contended: Registry, raw: RawSql) -> None:
    assert kept(contended)["a"].charged["vcpus"] == 4
    assert kept(contended)["b"].charged == {}
    let_time_pass(raw, HALF_LIFE_S)
    add_request(contended, 1, tenant="a", name="more")

    decided = a_round(contended, 120)

    assert decided is not None
    assert past_of(contended, decided.number) == pytest.approx([2, 0], abs=0.01)
    assert contended.rounds.get(decided.number).memory == {"half_life_s": 3600, "horizon_s": 3600}
    [share, _] = contended.rounds.get(decided.number).shares
    assert share["level"] == pytest.approx({"past": 0.25, "now": 0.5}, abs=0.01)


def test_explanations_tell_both_parts_of_a_level(contended: Registry, raw: RawSql) -> None:
    let_time_pass(raw, HALF_LIFE_S)
    more = add_request(contended, 1, tenant="a", name="more")
    a_round(contended, 120)

    for reader in (an_operator(contended), a_tenant(contended, "a")):
        waiting = explain_request(contended, more.id, reader).waiting
        assert waiting is not None
        assert (
            "its tenant's level is 75.0% of the cluster: 25.0% for what it held in the past while"
            " others waited, which halves every 1 h, and 50.0% for what it holds now; tenants of"
            " lower levels go first"
        ) in waiting.message


def test_a_round_with_memory_is_replayed_to_the_byte(contended: Registry, raw: RawSql) -> None:
    let_time_pass(raw, 12_345)
    [first, *_] = contended.vms.list(tenant="a").items
    contended.vms.delete(first.id, actor=ACTOR)
    assert first.assignment_id is not None
    remove_vm(contended, first.assignment_id)

    decided = a_round(contended, 120)

    assert decided is not None
    assert decided.placed == 1
    assert replay_round(contended, decided.number).identical


def test_a_tenant_recomputes_its_level_from_its_proof(contended: Registry, raw: RawSql) -> None:
    let_time_pass(raw, HALF_LIFE_S)
    add_request(contended, 1, tenant="a", name="more")
    decided = a_round(contended, 120)
    assert decided is not None

    saved = json.dumps(exported(contended)).encode()

    assert verify_chain(parse_document(saved), "a").rows == decided.number
    [newest, *_] = parse_document(saved)["rounds"]
    assert newest["header"]["memory"] == {"half_life_s": 3600, "horizon_s": 3600}
    assert newest["row"]["level"]["past"] == pytest.approx(0.25, abs=0.01)


@pytest.mark.parametrize(
    "alter",
    [
        lambda newest: newest["row"]["level"].update(past=0.5),
        lambda newest: newest["row"]["level"].update(past_millionths=[1, 0, 0]),
        lambda newest: newest["header"]["memory"].update(half_life_s=7200),
        lambda newest: newest["row"].update(level=None),
    ],
)
def test_an_altered_level_is_found(
    contended: Registry, alter: Callable[[dict[str, Any]], None]
) -> None:
    document = exported(contended)
    alter(document["rounds"][0])

    with pytest.raises(ProofError):
        verify_chain(parse_document(json.dumps(document).encode()), "a")


def exported(register: Registry) -> dict[str, Any]:
    proofs = register.round_proofs.list("a").items
    return build_proof_document("a", [dataclasses.asdict(each) for each in proofs], keys=[])


def test_nobody_is_charged_once_nothing_waits(contended: Registry, raw: RawSql) -> None:
    [waits] = contended.requests.list(tenant="b").items
    let_time_pass(raw, HALF_LIFE_S)
    contended.requests.delete(waits.id, actor="b")

    assert a_round(contended, 120) is None

    assert kept(contended)["a"].charged == {}
    assert kept(contended)["a"].past["vcpus"] == pytest.approx(2 * MILLION, rel=0.01)


def test_without_the_setting_nothing_is_kept_and_rounds_are_as_before(
    contended: Registry, raw: RawSql
) -> None:
    add_request(contended, 1, tenant="a", name="more")
    decided = a_round(contended, 120, memory_s=0)

    assert decided is not None
    record = contended.rounds.get(decided.number)
    assert record.memory is None
    assert read_round_inputs(record).snapshot.memory is None
    assert "level" not in record.shares[0]


def test_switched_off_and_on_again_begins_anew(contended: Registry, raw: RawSql) -> None:
    """What was kept is not charged for the time in between."""
    let_time_pass(raw, 10 * HALF_LIFE_S)
    add_request(contended, 1, tenant="a", name="more")
    a_round(contended, 120, memory_s=0)
    add_request(contended, 1, tenant="a", name="still-more")

    decided = a_round(contended, 180)

    assert decided is not None
    assert past_of(contended, decided.number) == [0, 0]


def test_a_clock_that_steps_back_decays_nothing(contended: Registry, raw: RawSql) -> None:
    let_time_pass(raw, HALF_LIFE_S)
    add_request(contended, 1, tenant="a", name="more")
    a_round(contended, 120)
    let_time_pass(raw, -10 * HALF_LIFE_S)
    add_request(contended, 1, tenant="a", name="still-more")

    decided = a_round(contended, 180)

    assert decided is not None
    before = past_of(contended, decided.number)
    assert before[0] >= 0
    assert kept(contended)["a"].at_us < now_us() + MILLION


def test_a_removed_tenant_leaves_nothing_behind(contended: Registry, raw: RawSql) -> None:
    add_tenant(contended, "c")
    add_request(contended, 1, tenant="a", name="more")
    a_round(contended, 120)
    assert "c" in kept(contended)
    contended.tenants.remove("c", actor="test")
    add_request(contended, 1, tenant="a", name="still-more")

    a_round(contended, 180)

    owners: set[UUID] = set(contended.rounds.past_holdings())
    assert owners == {each.id for each in contended.cluster_queries.accounts().tenants}


def now_us() -> int:
    return int(now().timestamp() * MILLION)
