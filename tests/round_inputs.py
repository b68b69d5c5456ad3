"""Inputs of a round with defaults: a small cluster where not everything fits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from controller.rounds.inputs import RoundInputs
from controller.rounds.snapshots import SnapshotNames
from placement import Snapshot


def some_snapshot(**changes: Any) -> Snapshot:
    """Two tenants who ask two hosts for more than fits."""
    values: dict[str, Any] = {
        "resources": ("vcpus", "memory_mib", "disk_gib"),
        "capacity": np.array([[4, 8192, 500], [4, 4096, 200]]),
        "free": np.array([[4, 8192, 500], [4, 4096, 200]]),
        "host_class": np.array([0, 0]),
        "eligible": np.ones((2, 1), dtype=np.bool_),
        "demand": np.array([[1, 3072, 15], [2, 6144, 30]]),
        "count": np.array([4, 2]),
        "min_count": np.array([1, 1]),
        "tenant": np.array([0, 1]),
        "age": np.array([0, 3]),
        "weight": np.array([1.0, 1.0]),
        "held": np.zeros((2, 3), dtype=np.int64),
    }
    return Snapshot(**{**values, **changes})


def some_names() -> SnapshotNames:
    return SnapshotNames(
        hosts=(
            ("00000000-0000-7000-8000-000000000001", "host-1"),
            ("00000000-0000-7000-8000-000000000002", "host-2"),
        ),
        tenants=(("tenant-a", "a"), ("tenant-b", "b")),
        requests=(
            ("00000000-0000-7000-8000-0000000000a1", "web", "small"),
            ("00000000-0000-7000-8000-0000000000b1", "db", "medium"),
        ),
    )


def some_inputs(
    *,
    policy: str = "fuga",
    parameters: Mapping[str, Any] | None = None,
    budget_units: int | None = None,
    seed: int = 7,
    **snapshot: Any,
) -> RoundInputs:
    return RoundInputs(
        snapshot=some_snapshot(**snapshot),
        names=some_names(),
        policy=policy,
        parameters=parameters or {},
        seed=seed,
        budget_units=budget_units,
    )
