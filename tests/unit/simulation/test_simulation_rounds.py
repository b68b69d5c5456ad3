"""A slot of the simulator is a round of the control centre on the same state, bit for bit."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import numpy as np
import pytest

from controller.control_center.policy_child import decide
from controller.rounds.inputs import RoundInputs, allocation_document, parse_allocation
from controller.rounds.snapshots import to_snapshot
from placement import Reason, Snapshot, TenantTree
from placement.catalog.zone_policies import NamedPolicy, build_zone_inputs
from registry.catalogue import VMS
from registry.requests import MembershipRule, Rules, zone_of
from registry.rounds import (
    ClusterView,
    GroupView,
    HostView,
    QuotaView,
    RequestView,
    SpreadView,
    TenantView,
    VmGroupView,
)
from simulation.slots.engine import Engine
from simulation.slots.host_rules import may_use
from simulation.slots.idle_rounds import are_same_to_policies
from simulation.topology.hierarchy import Hierarchy, SimulatedQuota
from simulation.topology.hosts import SimHost
from simulation.traces.request_constraints import RequestConstraints
from tests.simulations import RESOURCES, a_chunk, an_engine, random_chunks

HOSTS = [
    SimHost(name="h0", labels=("ssd", "zone=a")),
    SimHost(name="h1", labels=("zone=a",)),
    SimHost(name="h2", labels=("zone=b",)),
    SimHost(name="h3", labels=("ssd", "zone=b")),
]
CAPACITY = [(8, 8192), (4, 4096), (4, 8192), (16, 8192)]


def an_id(kind: int, number: int) -> UUID:
    return UUID(int=(kind << 64) + number)


def the_view(engine: Engine, hierarchy: Hierarchy | None = None) -> ClusterView:
    """What the register center would read of the cluster as it is simulated."""
    hierarchy = hierarchy or Hierarchy()
    group_ids = {name: an_id(5, number) for number, name in enumerate(hierarchy.groups)}
    parent = {name: group_ids[group] for name, group in hierarchy.parents.items()}
    cluster, book, waiting = engine.cluster, engine.names, engine.waiting
    _, tenants = engine.snapshot()
    wishes = [book.request_constraints.values[wish] for wish in waiting.constraints.tolist()]
    running = engine.running.all_rows()
    requests = []
    groups: dict[tuple[int, str], VmGroupView] = {}
    for row, wish in enumerate(wishes):
        request = int(waiting.request[row])
        tenant = int(waiting.tenant[row])
        spread = None
        if wish.rules.spread is not None:
            zones = sorted({zone_of(h.labels) or "" for h in cluster.hosts if may_use(wish, h)})
            at = dict.fromkeys(zones, 0)
            for vms in running:
                for host, count in zip(
                    vms.host[vms.request == request], vms.count[vms.request == request], strict=True
                ):
                    at[zone_of(cluster.hosts[host].labels) or ""] += int(count)
            most = -(-int(waiting.wanted[row]) // len(zones))
            spread = SpreadView(most=most, placed=tuple(at.items()))
        requests.append(
            RequestView(
                id=an_id(3, request),
                name=f"r{request}",
                tenant_id=an_id(2, tenant),
                vm_type="x",
                demand=tuple(book.demand[waiting.kind[row]].tolist()),
                count=int(waiting.count[row]),
                min_count=int(waiting.min_counts()[row]),
                requires=wish.requires,
                hosts=wish.hosts,
                avoid=(),
                age=int(waiting.age[row]),
                created_at=datetime(2026, 1, 1, tzinfo=UTC),
                rules=wish.rules,
                spread=spread,
            )
        )
        for apart, rule in wish.memberships:
            key = (tenant, rule.group)
            hosts = {
                int(host)
                for vms in running
                for host, its, theirs in zip(vms.host, vms.constraints, vms.tenant, strict=True)
                if theirs == tenant
                and (apart, rule) in book.request_constraints.values[its].memberships
            }
            before = groups.get(key)
            groups[key] = VmGroupView(
                id=an_id(4, before.id.int & 0xFFFF if before else len(groups)),
                name=rule.group,
                apart=apart,
                hard=not rule.soft,
                requests=(*(before.requests if before else ()), an_id(3, request)),
                hosts=tuple(an_id(1, host) for host in sorted(hosts)),
            )
    return ClusterView(
        epoch=1,
        now=datetime(2026, 1, 1, tzinfo=UTC),
        resources=RESOURCES,
        hosts=tuple(
            HostView(
                id=an_id(1, index),
                name=host.name,
                version=1,
                accepts=host.accepts,
                labels=host.labels,
                capacity=tuple(cluster.capacity[index].tolist()),
                committed=tuple(cluster.committed[index].tolist()),
            )
            for index, host in enumerate(cluster.hosts)
        ),
        tenants=tuple(
            TenantView(
                id=an_id(2, tenant),
                name=book.tenants.values[tenant],
                weight=float(book.weight[tenant]),
                held=tuple(book.held[tenant].tolist()),
                parent_id=parent.get(book.tenants.values[tenant]),
                vms=int(book.vms[tenant]),
            )
            for tenant in tenants.tolist()
        ),
        groups=tuple(
            GroupView(
                id=group,
                name=name,
                weight=hierarchy.weights.get(name, 1.0),
                parent_id=parent.get(name),
            )
            for name, group in group_ids.items()
        ),
        quotas=tuple(
            QuotaView(
                owner_id=group_ids.get(quota.owner) or _tenant_id(engine, quota.owner),
                owner=quota.owner,
                resource=quota.resource,
                limit=quota.limit,
            )
            for quota in hierarchy.quotas
        ),
        requests=tuple(requests),
        vm_groups=tuple(groups.values()),
    )


def _tenant_id(engine: Engine, name: str) -> UUID:
    names = engine.names.tenants.values
    return an_id(2, names.index(name) if name in names else 99)


def assert_same(one: Snapshot, other: Snapshot) -> None:
    for field in dataclasses.fields(Snapshot):
        a, b = getattr(one, field.name), getattr(other, field.name)
        if isinstance(a, np.ndarray):
            np.testing.assert_array_equal(a, b, err_msg=field.name)
            assert a.dtype == b.dtype, field.name
        elif isinstance(a, TenantTree):
            assert (a.parent, a.leaf) == (b.parent, b.leaf)
            assert a.weight.tolist() == b.weight.tolist()
        else:
            assert a == b, field.name


@pytest.mark.parametrize("policy", ["fuga", "best_fit_drfh"])
def test_a_slot_equals_a_round_on_the_same_state(policy: str) -> None:
    engine = an_engine(HOSTS, capacity=CAPACITY, policy=policy)
    rules = [
        RequestConstraints(requires=("ssd",)),
        RequestConstraints(hosts=("h1", "h2")),
        RequestConstraints(rules=Rules(anti_affinity=MembershipRule(group="apart"))),
        RequestConstraints(rules=Rules(spread="zone")),
        RequestConstraints(rules=Rules(prefers=("ssd",), forbids=("none",))),
    ]
    compared = 0
    for slot, chunk in enumerate(random_chunks(11, 12, 60.0)):
        wishes = tuple(rules[(slot + row) % len(rules)] for row in range(len(chunk)))
        ruled = dataclasses.replace(chunk, request_constraints=wishes)
        before = _before_round(engine, slot, [ruled] if len(ruled) else [], None)
        if before is None:
            continue
        view, passed = before
        if passed.round is None:
            continue
        snapshot, names = to_snapshot(view)
        inputs = RoundInputs(
            snapshot=snapshot,
            names=names,
            policy=policy,
            parameters={},
            seed=int(slot * 60.0),
            budget_units=2_000_000,
        )
        document = decide(inputs.encode()).document

        assert_same(passed.round.snapshot, snapshot)
        assert allocation_document(passed.round.allocation) == document
        assert parse_allocation(document).placed.tolist() == passed.round.allocation.placed.tolist()
        compared += 1
    assert compared > 5


TREE = Hierarchy(
    groups=("staff", "left", "right", "nobody"),
    parents={"left": "staff", "right": "staff", "t0": "left", "t1": "left", "t2": "right"},
    weights={"left": 3.0, "t1": 0.5, "nobody": 2.0},
    quotas=(
        SimulatedQuota(owner="staff", resource="vcpus", limit=14),
        SimulatedQuota(owner="t1", resource=VMS, limit=2),
        SimulatedQuota(owner="t3", resource="memory_mib", limit=6144),
        SimulatedQuota(owner="nobody", resource=VMS, limit=1),
    ),
)


@pytest.mark.parametrize("zones", [{}, {"b": "first_fit"}], ids=["one policy", "a zone's own"])
def test_a_slot_with_groups_and_quotas_equals_a_round_on_the_same_state(zones) -> None:
    engine = an_engine(HOSTS, capacity=CAPACITY, policy="fuga", hierarchy=TREE, zone_policies=zones)
    fuga = NamedPolicy(policy="fuga", parameters={})
    named = {zone: NamedPolicy(policy=name, parameters={}) for zone, name in zones.items()}
    compared, reasons = 0, set()
    for slot, chunk in enumerate(random_chunks(5, 14, 60.0)):
        before = _before_round(engine, slot, [chunk] if len(chunk) else [], TREE)
        if before is None or before[1].round is None:
            continue
        view, passed = before
        snapshot, names = to_snapshot(view)
        inputs = RoundInputs(
            snapshot=snapshot,
            names=names,
            policy="fuga",
            parameters={},
            seed=int(slot * 60.0),
            budget_units=2_000_000,
            zones=build_zone_inputs([zone_of(host.labels) for host in view.hosts], named, fuga),
        )
        document = decide(inputs.encode()).document

        assert_same(passed.round.snapshot, snapshot)
        assert snapshot.tree is not None
        assert snapshot.allowances
        assert allocation_document(passed.round.allocation) == document
        reasons |= {left.reason for left in passed.round.allocation.left_out}
        compared += 1
    assert compared > 5
    assert Reason.QUOTA in reasons


def _before_round(
    engine: Engine,
    slot: int,
    chunks: list,  # type: ignore[type-arg]
    hierarchy: Hierarchy | None,
) -> tuple | None:  # type: ignore[type-arg]
    """Pass to a slot; return the view that its round had, and what it decided."""
    seen: list[ClusterView] = []
    decide_ = engine.decider.decide

    def spy(*given: Any, **more: Any) -> object:
        seen.append(the_view(engine, hierarchy))
        return decide_(*given, **more)

    engine.decider.decide = spy  # type: ignore[method-assign, assignment]
    try:
        passed = engine.advance_to(slot, chunks)
    finally:
        engine.decider.decide = decide_  # type: ignore[method-assign]
    return (seen[0], passed) if seen else None


def test_rounds_repeat_for_the_simulator_when_they_do_for_the_control_centre() -> None:
    engine = an_engine(HOSTS, capacity=CAPACITY)
    engine.advance_to(0, [a_chunk({"demand": (99, 99), "tenant": "b"}, {"count": 50})])
    snapshots, digests = [], []
    for age in (0, 1, 11, 12, 13, 95, 96):
        engine.waiting = dataclasses.replace(
            engine.waiting, age=np.full(len(engine.waiting), age, dtype=np.int64)
        )
        snapshot, names = to_snapshot(the_view(engine))
        snapshots.append(snapshot)
        inputs = RoundInputs(
            snapshot=snapshot,
            names=names,
            policy="fuga",
            parameters={"patience": 12},
            seed=age,
            budget_units=1,
        )
        digests.append(inputs.digest())

    for a, digest_a in zip(snapshots, digests, strict=True):
        for b, digest_b in zip(snapshots, digests, strict=True):
            assert are_same_to_policies(a, b, 12) == (digest_a == digest_b)
