"""What is decided on, stored and replayed."""

from __future__ import annotations

import dataclasses
import zlib

import numpy as np

from controller.rounds.inputs import allocation_document, decode_inputs, parse_allocation
from placement import Allocation, LeftOut, Reason, Snapshot, TenantTree
from placement.catalog.zone_policies import ZoneInputs
from placement.model.memory import HoldingMemory
from tests.round_inputs import some_inputs


def same(one: Snapshot, other: Snapshot) -> bool:
    pairs = [
        (getattr(one, field.name), getattr(other, field.name))
        for field in dataclasses.fields(Snapshot)
    ]
    return all(
        np.array_equal(a, b) and np.shape(a) == np.shape(b) and np.asarray(a).dtype == b.dtype
        if isinstance(b, np.ndarray)
        else a == b
        for a, b in pairs
    )


def test_inputs_come_back_as_they_were():
    inputs = some_inputs(policy="fuga", parameters={"eta": 3}, budget_units=10)

    again = decode_inputs(inputs.encode())

    assert same(again.snapshot, inputs.snapshot)
    assert (again.names, again.policy, again.parameters) == (inputs.names, "fuga", {"eta": 3})
    assert (again.seed, again.budget_units) == (7, 10)
    assert again.encode() == inputs.encode()


def test_a_tree_of_tenants_comes_back_and_changes_the_digest():
    tree = TenantTree(parent=(-1, 0, 1, 1), weight=np.array([1.0, 2.0, 0.5, 1.0]), leaf=(2, 3))
    inputs = some_inputs(tree=tree)

    again = decode_inputs(inputs.encode())

    assert again.snapshot.tree is not None
    assert (again.snapshot.tree.parent, again.snapshot.tree.leaf) == (tree.parent, tree.leaf)
    assert again.snapshot.tree.weight.tolist() == [1.0, 2.0, 0.5, 1.0]
    assert again.encode() == inputs.encode()
    assert inputs.digest() != some_inputs().digest()


def test_a_memory_of_holdings_comes_back_and_rounds_without_one_keep_their_bytes():
    inputs = some_inputs()
    tenants = len(inputs.snapshot.weight)
    past = tuple((10**25 + number,) * 2 for number in range(tenants))
    memory = HoldingMemory(half_life_s=21_600, horizon_s=3600, past=past)
    later = dataclasses.replace(memory, past=((7, 7),) * tenants)
    remembering, again = (
        dataclasses.replace(inputs, snapshot=dataclasses.replace(inputs.snapshot, memory=each))
        for each in (memory, later)
    )

    assert decode_inputs(remembering.encode()).snapshot.memory == memory
    assert b'memory":' not in zlib.decompress(inputs.encode())
    # A memory that only decayed decides nothing else of a round that placed nothing.
    assert remembering.digest() == again.digest() != inputs.digest()


def test_groups_are_named_and_a_round_without_any_keeps_its_bytes():
    inputs = some_inputs()
    names = dataclasses.replace(inputs.names, groups=(("group-1", "research", 1),))

    again = decode_inputs(dataclasses.replace(inputs, names=names).encode())

    assert again.names.groups == (("group-1", "research", 1),)
    assert b"groups" not in zlib.decompress(inputs.encode())
    assert decode_inputs(inputs.encode()).names.groups == ()


def test_a_cluster_without_hosts_keeps_the_shapes_of_its_arrays():
    inputs = some_inputs(
        capacity=np.zeros((0, 3), dtype=np.int64),
        free=np.zeros((0, 3), dtype=np.int64),
        host_class=np.zeros(0, dtype=np.int64),
        eligible=np.zeros((2, 0), dtype=np.bool_),
    )

    assert same(decode_inputs(inputs.encode()).snapshot, inputs.snapshot)


def test_the_digest_ignores_time_and_nothing_else():
    inputs = some_inputs()

    assert some_inputs(age=np.array([9, 9]), seed=8).digest() == inputs.digest()
    assert some_inputs(count=np.array([4, 1])).digest() != inputs.digest()
    assert some_inputs(policy="first_fit").digest() != inputs.digest()
    assert some_inputs(held=np.array([[1, 0, 0], [0, 0, 0]])).digest() != inputs.digest()


def test_who_has_waited_for_nobodys_patience_is_as_new_in_every_zone():
    zones = tuple(
        ZoneInputs(name=name, policy="fuga", parameters={"patience": patience}, hosts=(host,))
        for host, (name, patience) in enumerate({"east": 10, "west": 20}.items())
    )
    new, patient, waiting = (
        dataclasses.replace(some_inputs(age=np.array(age)), zones=zones).digest()
        for age in ([0, 0], [9, 1], [10, 1])
    )

    assert patient == new
    assert waiting != new


def test_the_digest_sees_an_age_that_changes_what_is_decided():
    """From 12 rounds on hosts may be held back, from 96 on others of them."""
    ages = [[0, 11], [0, 12], [0, 95], [0, 96]]

    def digest(age: list[int], patience: int = 12) -> str:
        return some_inputs(age=np.array(age), parameters={"patience": patience}).digest()

    patient, first, still, second = map(digest, ages)

    assert patient == digest([5, 3])
    assert first == still
    assert len({patient, first, second}) == 3
    assert len({digest(age, 96) for age in ages[:3]}) == 1


def test_the_digest_sees_that_a_gang_has_waited_a_slot():
    """From then on hosts may be reserved for it."""
    gangs = dataclasses.replace(some_inputs().snapshot, min_count=np.array([1, 2]))

    def digest(age: list[int], **parameters: int) -> str:
        snapshot = dataclasses.replace(gangs, age=np.array(age))
        return dataclasses.replace(some_inputs(), snapshot=snapshot, parameters=parameters).digest()

    assert digest([0, 0]) == digest([1, 0])
    assert digest([0, 1]) == digest([0, 2]) != digest([0, 0])
    assert digest([0, 1], gang_patience=0) == digest([0, 0], gang_patience=0)


def test_an_allocation_comes_back_as_it_was():
    allocation = Allocation(
        placed=np.array([[0, 1, 2], [1, 0, 1]]),
        left_out=(LeftOut(request=0, count=2, reason=Reason.NO_ROOM),),
        work=12,
        cut=True,
        details={"weighed": {0: [{"utility": -1.25}]}},
    )

    document = allocation_document(allocation)

    assert allocation_document(parse_allocation(document)) == document
    assert document["details"]["weighed"]["0"] == [{"utility": -1.25}]
