"""Builders with defaults, so that a test shows only what matters."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence

import numpy as np

from placement import Snapshot


def a_public_key(comment: str = "me@laptop") -> str:
    """Return an OpenSSH public key; another comment, another key."""
    kind = b"ssh-ed25519"
    parts = [kind, hashlib.sha256(comment.encode()).digest()]
    blob = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    return f"{kind.decode()} {base64.b64encode(blob).decode()} {comment}"


def a_snapshot(
    *,
    capacity: Sequence[Sequence[int]] = ((4, 8192, 100),),
    free: Sequence[Sequence[int]] | None = None,
    demand: Sequence[Sequence[int]] = ((1, 1024, 5),),
    count: Sequence[int] | int = 1,
    tenant: Sequence[int] | None = None,
    weight: Sequence[float] | None = None,
    held: Sequence[Sequence[int]] | None = None,
    host_class: Sequence[int] | None = None,
    eligible: Sequence[Sequence[bool]] | None = None,
    min_count: Sequence[int] | None = None,
    age: Sequence[int] | None = None,
    resources: Sequence[str] | None = None,
) -> Snapshot:
    """Return a snapshot; by default every request has a tenant of its own."""
    width = len(resources or (capacity[0] if len(capacity) else demand[0]))
    hosts = np.array(capacity, dtype=np.int64).reshape(-1, width)
    demands = np.array(demand, dtype=np.int64).reshape(-1, width)
    requests = len(demands)
    counts = [count] * requests if isinstance(count, int) else list(count)
    tenants = list(range(requests)) if tenant is None else list(tenant)
    weights = [1.0] * (max(tenants, default=-1) + 1) if weight is None else list(weight)
    classes = [0] * len(hosts) if host_class is None else list(host_class)
    number_of_classes = max(classes, default=-1) + 1
    names = ("vcpus", "memory_mib", "disk_gib", *(f"extra_{n}" for n in range(width)))
    return Snapshot(
        resources=tuple(resources) if resources else names[:width],
        capacity=hosts,
        free=hosts.copy() if free is None else np.array(free, dtype=np.int64).reshape(-1, width),
        host_class=np.array(classes, dtype=np.int64),
        eligible=(
            np.ones((requests, number_of_classes), dtype=np.bool_)
            if eligible is None
            else np.array(eligible, dtype=np.bool_)
        ),
        demand=demands,
        count=np.array(counts, dtype=np.int64),
        min_count=np.array(min_count if min_count is not None else [1] * requests, dtype=np.int64),
        tenant=np.array(tenants, dtype=np.int64),
        age=np.array(age if age is not None else [0] * requests, dtype=np.int64),
        weight=np.array(weights, dtype=np.float64),
        held=(
            np.zeros((len(weights), width), dtype=np.int64)
            if held is None
            else np.array(held, dtype=np.int64).reshape(len(weights), width)
        ),
    )
