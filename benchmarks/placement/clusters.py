"""Clusters to measure on: seeded, the same on every machine."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from placement import Snapshot

IntArray: TypeAlias = npt.NDArray[np.int64]
Mix: TypeAlias = Literal["equal cpu", "equal tenants"]

#: Cores and GiB: tiny, small, medium, large, xlarge of the FUGA paper.
VM_TYPES: Final = np.array([(1, 1), (1, 3), (2, 6), (4, 12), (8, 24)])

#: Google's servers: how many, and CPU and memory of the largest.
GOOGLE_SERVERS: Final = (
    (6732, 0.50, 0.50),
    (3863, 0.50, 0.25),
    (1001, 0.50, 0.75),
    (795, 1.0, 1.0),
    (126, 0.25, 0.25),
    (52, 0.50, 0.12),
    (5, 0.50, 0.03),
    (5, 0.50, 0.97),
    (3, 1.0, 0.5),
    (1, 0.5, 0.06),
)
#: Cores and GiB of the largest server.
LARGEST: Final = (64, 256)
#: Tenants of all rounds.
TENANTS: Final = 900

#: The second set: cores, GiB and GB of disk of its three kinds of host, and how many of ten.
LARGE_HOSTS: Final = (((128, 512, 8000), 5), ((128, 1024, 4000), 3), ((96, 384, 16000), 2))
#: What some hosts of the second set have, and some requests require: host classes.
LABELS: Final = ("", "ssd", "near", "ssd near")


def google_hosts(number: int) -> IntArray:
    """Return cores and GiB of hosts in the proportions of Google's table, shape (H, 2)."""
    servers = np.array([servers for servers, _, _ in GOOGLE_SERVERS])
    sizes = np.array(
        [
            (round(LARGEST[0] * cpu), max(1, round(LARGEST[1] * memory)))
            for _, cpu, memory in GOOGLE_SERVERS
        ]
    )
    drawn = np.random.default_rng(0).choice(len(servers), number, p=servers / servers.sum())
    return sizes[drawn].astype(np.int64)


def fresh_round(
    hosts: int, *, load: float = 1.2, mix: Mix = "equal cpu", seed: int = 1
) -> Snapshot:
    """Return a round on empty hosts of Google's table that requests ``load`` times all cores.

    900 tenants ask for a type each, in requests of heavy-tailed sizes. The types
    ask for equally many cores each (``equal cpu``), or the sizes of tenants in
    VMs do not depend on the type (``equal tenants``: of each type as many, so
    that the largest type asks for half of the cores).
    """
    rng = np.random.default_rng(seed)
    capacity = google_hosts(hosts)
    cores = load * int(capacity[:, 0].sum())
    of_type = np.arange(TENANTS) % len(VM_TYPES)
    sizes = heavy_tailed(rng, TENANTS)
    vm_cores = VM_TYPES[of_type, 0]
    if mix == "equal cpu":
        of_all = np.bincount(of_type, sizes * vm_cores)[of_type]
        vms = sizes * cores / len(VM_TYPES) / of_all
    else:
        vms = sizes * cores / (sizes * vm_cores).sum()
    tenant, count = _in_requests(rng, np.maximum(np.rint(vms), 1).astype(np.int64))
    return _snapshot(("vcpus", "memory_gib"), capacity, VM_TYPES[of_type[tenant]], count, tenant)


def a_slot(hosts: int, *, vms: int, seed: int = 2) -> Snapshot:
    """Return the round of a slot: ``vms`` VMs for hosts half filled with a mix of all types.

    There are hundreds of distinct free vectors.
    """
    rng = np.random.default_rng(seed)
    capacity = google_hosts(hosts)
    free = capacity.copy()
    # Draw types for every host until half of its cores are in use or its memory is.
    for _ in range(LARGEST[0]):
        drawn = VM_TYPES[rng.integers(0, len(VM_TYPES), hosts)]
        more = (free[:, 0] * 2 > capacity[:, 0]) & (free >= drawn).all(axis=1)
        free -= drawn * more[:, None]
    shares = heavy_tailed(rng, TENANTS)
    wanted = np.maximum(np.rint(vms * shares / shares.sum()), 1).astype(np.int64)
    tenant, count = _in_requests(rng, wanted)
    of_request = rng.integers(0, len(VM_TYPES), len(count))
    used = (capacity - free).sum(axis=0)
    held = np.floor(heavy_parts(rng, TENANTS)[:, None] * used).astype(np.int64)
    return _snapshot(
        ("vcpus", "memory_gib"), capacity, VM_TYPES[of_request], count, tenant, free, held
    )


def half_filled_round(hosts: int, *, load: float = 1.2, seed: int = 2) -> Snapshot:
    """Return a round on half filled hosts that requests ``load`` times the free cores."""
    left = int(a_slot(hosts, vms=1, seed=seed).free[:, 0].sum())
    return a_slot(hosts, vms=int(load * left / VM_TYPES[:, 0].mean()), seed=seed)


def large_hosts_round(hosts: int, *, load: float = 1.2, seed: int = 3) -> Snapshot:
    """Return a round of the second set: 20 types, 128 cores, three resources, labels."""
    rng = np.random.default_rng(seed)
    of_host = rng.choice(len(LARGE_HOSTS), hosts, p=np.array([n for _, n in LARGE_HOSTS]) / 10)
    capacity = np.array([size for size, _ in LARGE_HOSTS])[of_host]
    types = np.array(
        [
            (cores, cores * gib, cores * gb)
            for cores in (1, 2, 4, 8, 16)
            for gib, gb in ((2, 10), (4, 25), (4, 100), (8, 20))
        ]
    )
    # Every request may use the hosts that have at least the labels it requires.
    requires = np.array([(0, 1, 2, 3), (1, 3), (2, 3)], dtype=object)
    of_tenant = rng.choice(len(requires), TENANTS, p=(0.8, 0.1, 0.1))
    sizes = heavy_tailed(rng, TENANTS)
    of_type = np.arange(TENANTS) % len(types)
    cores = load * int(capacity[:, 0].sum())
    of_all = np.bincount(of_type, sizes * types[of_type, 0])[of_type]
    vms = np.maximum(np.rint(sizes * cores / len(types) / of_all), 1).astype(np.int64)
    tenant, count = _in_requests(rng, vms)
    eligible = np.zeros((len(requires), len(LABELS)), dtype=np.bool_)
    for row, classes in enumerate(requires):
        eligible[row, list(classes)] = True
    return _snapshot(
        ("vcpus", "memory_gib", "disk_gb"),
        capacity,
        types[of_type[tenant]],
        count,
        tenant,
        host_class=rng.choice(len(LABELS), hosts, p=(0.4, 0.2, 0.2, 0.2)),
        eligible=eligible[of_tenant[tenant]],
    )


def heavy_tailed(rng: np.random.Generator, number: int) -> npt.NDArray[np.float64]:
    """Return sizes of a Pareto distribution (1.5), none more than a hundred times the least."""
    return np.minimum(1 + rng.pareto(1.5, number), 100.0)


def heavy_parts(rng: np.random.Generator, number: int) -> npt.NDArray[np.float64]:
    """Return heavy-tailed fractions whose sum is 1."""
    sizes = heavy_tailed(rng, number)
    return sizes / sizes.sum()


def _in_requests(rng: np.random.Generator, vms: IntArray) -> tuple[IntArray, IntArray]:
    """Cut each tenant's VMs into one to five requests, and shuffle them: tenant and count."""
    tenant, count = [], []
    for number, wanted in enumerate(vms.tolist()):
        parts = min(wanted, int(rng.integers(1, 6)))
        cut = rng.multinomial(wanted - parts, heavy_parts(rng, parts)) + 1
        tenant += [number] * parts
        count += cut.tolist()
    order = rng.permutation(len(count))
    return np.array(tenant)[order], np.array(count)[order]


def _snapshot(
    resources: tuple[str, ...],
    capacity: IntArray,
    demand: IntArray,
    count: IntArray,
    tenant: IntArray,
    free: IntArray | None = None,
    held: IntArray | None = None,
    host_class: IntArray | None = None,
    eligible: npt.NDArray[np.bool_] | None = None,
) -> Snapshot:
    return Snapshot(
        resources=resources,
        capacity=capacity.astype(np.int64),
        free=(capacity if free is None else free).astype(np.int64),
        host_class=(
            np.zeros(len(capacity), dtype=np.int64)
            if host_class is None
            else host_class.astype(np.int64)
        ),
        eligible=np.ones((len(count), 1), dtype=np.bool_) if eligible is None else eligible,
        demand=demand.astype(np.int64),
        count=count.astype(np.int64),
        min_count=np.ones(len(count), dtype=np.int64),
        tenant=tenant.astype(np.int64),
        age=np.zeros(len(count), dtype=np.int64),
        weight=np.ones(TENANTS),
        held=np.zeros((TENANTS, len(resources)), dtype=np.int64) if held is None else held,
    )
