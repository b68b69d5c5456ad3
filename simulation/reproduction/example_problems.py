"""Servers and users of worked examples, as mechanisms and policies see them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from placement import (
    Allocation,
    DivisibleProblem,
    Division,
    IntArray,
    Snapshot,
    TenantTree,
    check_allocation,
    check_division,
    decide,
    mechanism_by_name,
    policy_by_name,
)

Rows = Sequence[Sequence[float]]


def divisible_problem(
    resources: tuple[str, ...],
    servers: Rows,
    demands: Rows,
    *,
    weight: Sequence[float] | None = None,
    eligible: Sequence[Sequence[int]] | None = None,
    speed: Rows | None = None,
    count: Sequence[float] | None = None,
    tree: TenantTree | None = None,
) -> DivisibleProblem:
    """Return servers (or whole classes of them) and users of an example as a mechanism's problem.

    Each user has one task vector; its number of tasks is unbounded by default.
    """
    capacity = np.array(servers, dtype=np.float64)
    demand = np.array(demands, dtype=np.float64)
    shape = (len(demand), len(capacity))
    return DivisibleProblem(
        resources=resources,
        capacity=capacity,
        free=capacity.copy(),
        hosts=np.ones(shape[1], dtype=np.int64),
        demand=demand,
        speed=np.ones(shape) if speed is None else np.array(speed, dtype=np.float64),
        eligible=np.ones(shape, dtype=np.bool_) if eligible is None else np.array(eligible) > 0,
        count=np.full(shape[0], np.inf) if count is None else np.array(count, dtype=np.float64),
        weight=np.ones(shape[0]) if weight is None else np.array(weight, dtype=np.float64),
        held=np.zeros_like(demand),
        tree=tree,
    )


def checked_division(name: str, problem: DivisibleProblem, **parameters: Any) -> Division:
    """Return a mechanism's division of an example, checked by independent code."""
    division = mechanism_by_name(name, parameters).divide(problem, np.random.default_rng(0))
    check_division(problem, division)
    return division


def round_snapshot(
    resources: tuple[str, ...],
    servers: IntArray,
    demands: Sequence[Sequence[int]],
    count: int | Sequence[int],
    tenant: Sequence[int] | None = None,
) -> Snapshot:
    """Return the snapshot of an example: empty hosts, and requests in order.

    By default each request is of a tenant of its own.
    """
    capacity, demand = np.array(servers, dtype=np.int64), np.array(demands, dtype=np.int64)
    requests = len(demand)
    tenant_rows = np.arange(requests) if tenant is None else np.array(tenant, dtype=np.int64)
    tenants = int(tenant_rows.max(initial=-1)) + 1
    return Snapshot(
        resources=resources,
        capacity=capacity,
        free=capacity.copy(),
        host_class=np.zeros(len(capacity), dtype=np.int64),
        eligible=np.ones((requests, 1), dtype=np.bool_),
        demand=demand,
        count=np.broadcast_to(np.array(count, dtype=np.int64), (requests,)).copy(),
        min_count=np.ones(requests, dtype=np.int64),
        tenant=tenant_rows,
        age=np.zeros(requests, dtype=np.int64),
        weight=np.ones(tenants),
        held=np.zeros((tenants, len(resources)), dtype=np.int64),
    )


def checked_allocation(
    name: str, snapshot: Snapshot, *, seed: int = 0, **parameters: Any
) -> Allocation:
    """Return a policy's allocation of an example, decided as in rounds and checked."""
    policy = policy_by_name(name, parameters)
    allocation = decide(snapshot, policy, seed=seed, budget_units=None)
    check_allocation(snapshot, allocation)
    return allocation


def vms_of(snapshot: Snapshot, allocation: Allocation) -> IntArray:
    """Return an allocation's VMs by request and host, shape (Q, H)."""
    vms = np.zeros((len(snapshot.count), len(snapshot.capacity)), dtype=np.int64)
    requests, hosts, counts = allocation.placed.T
    vms[requests, hosts] = counts
    return vms
