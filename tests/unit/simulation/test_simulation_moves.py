"""VMs move in a simulation: both hosts hold them meanwhile, and the books stay in order."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import pytest

from registry.requests import MembershipRule, Rules
from simulation import InputError
from simulation.slots.engine import Engine, SlotResult
from simulation.slots.moving.move_options import (
    BalanceOptions,
    MoveOptions,
    MovePrice,
    RollOptions,
    RoomOptions,
)
from simulation.slots.moving.timetable import MoveOutcome
from simulation.topology.hosts import HostEvent, HostEventKind, SimHost
from simulation.traces.request_constraints import RequestConstraints
from tests.simulations import a_chunk, an_engine, random_chunks

ZONES = [SimHost(name=f"h{number}", labels=(f"zone=z{number % 2}",)) for number in range(6)]
WISHES = [
    RequestConstraints(),
    RequestConstraints(rules=Rules(anti_affinity=MembershipRule(group="db"))),
    RequestConstraints(rules=Rules(affinity=MembershipRule(group="web"))),
    RequestConstraints(rules=Rules(spread="zone")),
]
EVERYTHING = MoveOptions(
    price=MovePrice(gib_per_s=0.02, least_s=1.0, rest_s=120.0),
    balance=BalanceOptions(every_s=120.0, least_gain=1e-6),
    spare="host",
    roll=RollOptions(at_s=600.0, at_once=2, takes_s=90.0, wait_s=600.0),
    room=RoomOptions(patience=3),
)


def moved(passed: SlotResult) -> list[tuple[int, int, int, str]]:
    """Return request, hosts and outcome of the moves that ended."""
    return [
        (each.move.vm.request, each.move.vm.host, each.move.destination, each.outcome.value)
        for each in passed.moves
    ]


def books_of(engine: Engine) -> tuple[Any, ...]:
    """Return what hosts hold and where groups are, counted again from the VMs."""
    committed = np.zeros_like(engine.cluster.committed)
    groups: Counter[tuple[str, int]] = Counter()
    assert engine.movers is not None
    arriving = [
        (move.destination, move.kind, move.constraints, 1)
        for move in engine.movers.timetable.under_way
    ]
    there = [
        row
        for part in engine.running.all_rows()
        for row in zip(*(each.tolist() for each in (part.host, part.kind, part.constraints,
                       part.count)), strict=True)
    ]  # fmt: skip
    for host, kind, wish, count in (*there, *arriving):
        committed[host] += count * engine.names.demand[kind]
        for _, rule in engine.names.request_constraints.values[wish].memberships:
            groups[rule.group, host] += count
    return committed, groups


def test_balance_levels_hosts_while_both_hold_what_moves() -> None:
    moving = MoveOptions(
        price=MovePrice(gib_per_s=0.1, least_s=20.0), balance=BalanceOptions(every_s=60.0)
    )
    engine = an_engine(capacity=[(8, 8192), (8, 8192)], moving=moving)
    engine.advance_to(0, [a_chunk({"count": 6, "demand": (1, 1024)})])

    engine.advance_to(1, [])
    meanwhile = engine.cluster.committed[:, 0].tolist()
    passed = engine.advance_to(2, [])

    # Two at a time, of 1 GiB at 0.1 GiB/s and 20 s more: two waves of 30 s.
    assert meanwhile == [6, 2]
    assert engine.cluster.committed[:, 0].tolist() == [3, 3]
    assert [each[1:] for each in moved(passed)] == [(0, 1, "moved")] * 3
    assert engine.names.held[0].tolist() == [6, 6144]


def test_what_ends_while_it_moves_leaves_nothing_behind() -> None:
    moving = MoveOptions(price=MovePrice(least_s=100.0), balance=BalanceOptions(every_s=60.0))
    engine = an_engine(capacity=[(8, 8192), (8, 8192)], moving=moving)
    engine.advance_to(0, [a_chunk({"count": 6, "lifetime_s": 150.0})])
    engine.advance_to(1, [])
    engine.advance_to(2, [])

    passed = engine.advance_to(3, [])

    assert {each[-1] for each in moved(passed)} == {"gone"}
    assert not engine.cluster.committed.any()


def test_a_round_between_two_waves_may_take_the_room_of_the_second() -> None:
    moving = MoveOptions(
        price=MovePrice(least_s=70.0, per_host=1),
        balance=BalanceOptions(every_s=60.0, least_gain=1e-6),
    )
    engine = an_engine(capacity=[(8, 8192), (4, 4096)], moving=moving)
    engine.advance_to(0, [a_chunk({"count": 6})])
    engine.advance_to(1, [])

    second = engine.advance_to(2, [a_chunk({"arrival_s": 90.0, "demand": (3, 3072)})])
    third = engine.advance_to(3, [])

    assert MoveOutcome.REFUSED.value in {each[-1] for each in (*moved(second), *moved(third))}
    assert (engine.cluster.committed <= engine.cluster.capacity).all()


def test_a_roll_empties_each_host_and_says_what_could_not_move() -> None:
    roll = RollOptions(takes_s=120.0, wait_s=120.0)
    engine = an_engine(capacity=[(4, 4096), (4, 4096), (2, 2048)], moving=MoveOptions(roll=roll))
    # The first host's VM of four cores fits the second, and then nowhere but back.
    engine.advance_to(0, [a_chunk({"demand": (4, 4096)}, {"demand": (2, 2048)})])

    for slot in range(1, 40):
        engine.advance_to(slot, [])

    assert engine.movers is not None
    shown = engine.movers.roll_report()
    assert shown is not None
    assert shown["rolled"] == 2
    assert [each["host"] for each in shown["left_out"]] == ["h0"]
    assert shown["left_out"][0]["why"] == ["a VM of request 0: no_room"]
    assert all(host.accepts for host in engine.cluster.hosts)


def test_room_is_made_for_who_starves_and_kept_from_others() -> None:
    # One small VM on each host: none of four cores fits, though six are free.
    moving = MoveOptions(price=MovePrice(least_s=90.0), room=RoomOptions(patience=2))
    engine = an_engine(policy="best_fit_drfh", moving=moving)
    small, large = {"demand": (1, 1024), "tenant": "s"}, {"demand": (3, 3072), "lifetime_s": 30}
    engine.advance_to(0, [a_chunk(small, large)])
    engine.advance_to(0, [a_chunk(small, large)])
    starves = a_chunk({"arrival_s": 60, "tenant": "l", "demand": (4, 4096)})
    passed = [engine.advance_to(1, [starves])]
    for slot in range(2, 10):
        more = a_chunk({"arrival_s": 60.0 * slot, "tenant": "s", "lifetime_s": 61.0})
        passed.append(engine.advance_to(slot, [more]))

    placed = [
        int(request)
        for each in passed
        if each.round is not None
        for request in each.round.placed.request
    ]
    assert 4 in placed
    assert sum(each[-1] == "moved" for slot in passed for each in moved(slot)) == 1


@pytest.mark.parametrize("seed", range(3))
def test_books_are_in_order_whatever_happens(seed: int) -> None:
    events = [
        HostEvent(at_s=130.0 + 400 * seed % 7, host="h1", what=HostEventKind.FAIL),
        HostEvent(at_s=900.0, host="h1", what=HostEventKind.RETURN),
        HostEvent(at_s=1210.0, host="h2", what=HostEventKind.LEAVE),
    ]
    engine = an_engine(
        ZONES, capacity=[(6, 6144)] * 6, events=events, policy="best_fit_drfh", moving=EVERYTHING
    )
    wishes = random.Random(seed)
    outcomes: Counter[str] = Counter()
    for slot, chunk in enumerate(random_chunks(seed, 40, 60.0)):
        object.__setattr__(
            chunk, "request_constraints", tuple(wishes.choice(WISHES) for _ in chunk.tenant)
        )
        passed = engine.advance_to(slot, [chunk] if len(chunk) else [])
        outcomes.update(each[-1] for each in moved(passed))

        committed, groups = books_of(engine)
        assert engine.cluster.committed.tolist() == committed.tolist()
        assert (committed <= engine.cluster.capacity).all()
        found = Counter()
        for key, hosts in engine.rules._places.of_group.items():
            found.update({(key[1], host): count for host, count in hosts.items()})
        assert found == groups
        for key, hosts in engine.rules._places.of_group.items():
            assert not key[2] or max(hosts.values(), default=0) <= 1
        assert passed.round is None or passed.round.fallback_reason is None
    assert outcomes["moved"] > 3


@pytest.mark.parametrize(
    ("told", "says"),
    [
        ({"balance": "every=5"}, "one of"),
        ({"balance": "60"}, "no NAME=VALUE"),
        ({"balance": "hours=25:00-26:00"}, "01:00-05:00"),
        ({"roll": "at_once=0"}, "whole number"),
        ({"room": "patience=x"}, "patience"),
        ({"price": "gib_per_s=2"}, "nothing moves"),
    ],
)
def test_options_that_say_nothing_of_moves_are_refused(told: dict[str, str], says: str) -> None:
    with pytest.raises(InputError, match=says):
        MoveOptions.from_options(**told)


def test_hours_may_pass_midnight() -> None:
    rule = BalanceOptions(hours="22:00-02:00")

    assert [rule.is_open(hour * 3600.0) for hour in (21, 22, 1, 2)] == [False, True, True, False]
