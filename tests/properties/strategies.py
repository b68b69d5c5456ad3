"""Hypothesis strategies that build clusters which make sense."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import strategies as st

from placement import POLICIES, Allocation, Budget, Policy, QuotaHeadroom, Snapshot, policy_by_name
from placement.model.constraints import AffinityGroup, Constraints, Spread
from tests.builders import a_snapshot

#: Amounts of a tidy cluster, and of one counted in bytes.
SMALL_SCALE = (1, 1, 1)
HUGE_SCALE = (1, 10**12, 10**14)


@st.composite
def snapshots(
    draw: st.DrawFn,
    *,
    max_hosts: int = 5,
    max_requests: int = 5,
    max_count: int = 8,
    largest_host: int = 8,
    min_requests: int = 0,
    gangs: bool = False,
    ages: bool = False,
) -> Snapshot:
    """Draw a cluster: partly used hosts, closed classes, ties, zero demands, odd weights."""
    scale = np.array(draw(st.sampled_from([SMALL_SCALE, HUGE_SCALE])))
    hosts = draw(st.integers(0, max_hosts))
    requests = draw(st.integers(min_requests, max_requests))
    tenants = draw(st.integers(1, 3))
    classes = draw(st.integers(1, 2))
    amounts = st.integers(0, largest_host)
    capacity = _rows(draw, hosts, amounts)
    used = [[draw(st.sampled_from([0, 0, c // 2, c])) for c in row] for row in capacity]
    demand = _rows(draw, requests, st.integers(0, 4))
    eligible = [[draw(st.integers(0, 3)) > 0 for _ in range(classes)] for _ in range(requests)]
    host_class = [draw(st.integers(0, classes - 1)) for _ in range(hosts)]
    counts = [draw(st.integers(0, max_count)) for _ in range(requests)]
    return a_snapshot(
        resources=("vcpus", "memory_mib", "disk_gib"),
        capacity=np.array(capacity).reshape(-1, 3) * scale,
        free=(np.array(capacity).reshape(-1, 3) - np.array(used).reshape(-1, 3)) * scale,
        demand=np.array(demand).reshape(-1, 3) * scale,
        count=counts,
        tenant=[draw(st.integers(0, tenants - 1)) for _ in range(requests)],
        min_count=[draw(st.integers(1, min(4, n) or 1)) if gangs else 1 for n in counts],
        age=[draw(st.sampled_from([0, 5, 1_440, 12_000])) if ages else 0 for _ in range(requests)],
        weight=[draw(st.sampled_from([1.0, 1.0, 2.0, 0.5])) for _ in range(tenants)],
        held=np.array(_rows(draw, tenants, st.integers(0, 2))) * scale,
        host_class=host_class,
        eligible=np.array(eligible, dtype=np.bool_).reshape(requests, classes),
    )


def _rows(draw: st.DrawFn, number: int, amounts: st.SearchStrategy[int]) -> Sequence[list[int]]:
    return [[draw(amounts) for _ in range(3)] for _ in range(number)]


@st.composite
def contended_snapshots(
    draw: st.DrawFn,
    *,
    min_hosts: int = 2,
    max_hosts: int = 6,
    max_requests: int = 7,
    open_part: float = 0.8,
    gangs: bool = False,
    ages: bool = False,
) -> Snapshot:
    """Draw a cluster with something to decide: more is asked for than fits.

    Several hosts, some partly used, and several tenants, each of whom asks for something;
    every VM demands something of what ranks. What runs is held by the tenants.
    """
    scale = np.array(draw(st.sampled_from([SMALL_SCALE, HUGE_SCALE])))
    hosts = draw(st.integers(min_hosts, max_hosts))
    tenants = draw(st.integers(2, 4))
    requests = draw(st.integers(tenants, max(max_requests, tenants)))
    sizes = st.sampled_from([(4, 4, 20), (8, 8, 40), (8, 16, 20), (16, 8, 40), (6, 9, 30)])
    capacity = np.array([draw(sizes) for _ in range(hosts)])
    parts = [draw(st.sampled_from([0, 0, 1, 2])) for _ in range(hosts)]
    used = capacity * np.array(parts)[:, None] // 4
    held = np.zeros((tenants, 3), dtype=np.int64)
    holders = [draw(st.integers(0, tenants - 1)) for _ in range(hosts)]
    np.add.at(held, holders, used)
    amounts, little = st.integers(1, 4), st.integers(0, 3)
    demand = np.array([[draw(amounts), draw(amounts), draw(little)] for _ in range(requests)])
    counts = np.array([draw(st.integers(1, 8)) for _ in range(requests)])
    free = capacity - used
    while (counts @ demand)[:2].max() <= free.sum(axis=0)[:2].max():
        counts += 1
    classes = draw(st.integers(1, 2))
    eligible = [
        [draw(st.floats(0, 1)) < open_part for _ in range(classes)] for _ in range(requests)
    ]
    others = [draw(st.integers(0, tenants - 1)) for _ in range(requests - tenants)]
    return a_snapshot(
        resources=("vcpus", "memory_mib", "disk_gib"),
        capacity=capacity * scale,
        free=free * scale,
        demand=demand * scale,
        count=counts.tolist(),
        tenant=draw(st.permutations([*range(tenants), *others])),
        min_count=[draw(st.integers(1, min(4, n))) if gangs else 1 for n in counts.tolist()],
        age=[draw(st.sampled_from([0, 5, 1_440, 12_000])) if ages else 0 for _ in range(requests)],
        weight=[draw(st.sampled_from([1.0, 1.0, 2.0, 0.5])) for _ in range(tenants)],
        held=held * scale,
        host_class=[draw(st.integers(0, classes - 1)) for _ in range(hosts)],
        eligible=eligible,
    )


#: Every policy under the settings that change what it does.
POLICY_SETTINGS: Final[Sequence[tuple[str, Mapping[str, Any]]]] = (
    *((name, {}) for name in POLICIES),
    *((name, {"overload": 0.75}) for name in POLICIES if "overload" in POLICIES[name].parameters),
    ("fuga", {"quota": False}),
    ("fuga", {"equilibrium": "sequential", "eta": 2}),
    ("fuga", {"equilibrium": "sweeps", "alpha": 1.5}),
    ("fuga", {"ranking": ["vcpus", "memory_mib", "disk_gib"]}),
    ("slots", {"slots": 3}),
    ("optimal", {"objective": "vms"}),
)


def made(setting: tuple[str, Mapping[str, Any]]) -> tuple[Policy, Mapping[str, Any]]:
    """Return the policy of a setting, and its parameters."""
    name, parameters = setting
    return policy_by_name(name, parameters), parameters


def place(
    policy: Policy, snapshot: Snapshot, seed: int = 0, units: int | None = None
) -> Allocation:
    """Let a policy decide."""
    return policy.place(snapshot, np.random.default_rng(seed), Budget(units))


SEEDS: Final = st.integers(0, 2**32 - 1)
policies = st.sampled_from(POLICY_SETTINGS).map(made)
every_policy = pytest.mark.parametrize(
    "policy",
    [
        pytest.param(made(each), id="-".join(map(str, (each[0], *each[1].values()))))
        for each in POLICY_SETTINGS
    ],
)


@st.composite
def constrained_snapshots(draw: st.DrawFn, **options: Any) -> Snapshot:
    """Draw a cluster whose requests keep apart or together, spread, and prefer hosts."""
    snapshot = draw(contended_snapshots(gangs=draw(st.booleans()), min_hosts=3, **options))
    hosts, requests = len(snapshot.free), len(snapshot.count)
    members = st.lists(st.integers(0, requests - 1), unique=True, min_size=1)
    some_hosts = st.lists(st.integers(0, hosts - 1), unique=True, max_size=2) if hosts else None
    groups, apart_from, together_with = [], set(), set()
    for _ in range(draw(st.integers(1, 3))):
        apart, hard = draw(st.integers(0, 2)) > 0, draw(st.integers(0, 3)) > 0
        taken = apart_from if apart else together_with
        new = [request for request in draw(members) if request not in taken]
        if new:
            taken.update(new)
            held = tuple(sorted(draw(some_hosts))) if some_hosts is not None else ()
            groups.append(
                AffinityGroup(apart=apart, hard=hard, requests=tuple(sorted(new)), hosts=held)
            )
    zones = draw(st.integers(1, 3))
    # No request is both kept together and spread: the register refuses it.
    spreads = [
        Spread(
            request=request,
            maximum=draw(st.integers(1, 3)),
            placed=tuple(draw(st.integers(0, 2)) for _ in range(zones)),
        )
        for request in range(requests)
        if request not in together_with and draw(st.integers(0, 3)) == 0
    ]
    classes = st.lists(st.integers(0, snapshot.eligible.shape[1] - 1), unique=True)
    tenants = range(len(snapshot.weight))
    allowances = [
        QuotaHeadroom(
            tenants=tuple(sorted(draw(st.sets(st.sampled_from(tenants), min_size=1)))),
            resource=draw(st.sampled_from([None, 0])),
            room=draw(st.integers(0, 6)),
        )
        for _ in range(draw(st.sampled_from([0, 0, 1, 2])))
    ]
    return dataclasses.replace(
        snapshot,
        allowances=tuple(allowances),
        constraints=Constraints(
            groups=tuple(groups),
            spreads=tuple(spreads),
            zones=tuple(draw(st.integers(-1, zones - 1)) for _ in range(hosts)),
            preferred={
                request: tuple(sorted(draw(classes)))
                for request in range(requests)
                if draw(st.integers(0, 3)) == 0
            },
        ),
    )
