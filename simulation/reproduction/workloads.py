"""Hosts and requests of the published shape of Google's, in place of traces that are not public."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Final

import numpy as np

from placement import IntArray
from simulation.reproduction.trace_replay import ListedTrace
from simulation.traces.workload import Workload, hosts_like_google

RESOURCES: Final = ("vcpus", "memory_mib")
#: The factor on cores and lifetimes of the generator's requests.
SIZE: Final = 2
#: Cores times seconds of a request of the generator, in the mean over very many.
_CORE_SECONDS: Final = 22_700.0
DAY_S: Final = 86_400.0

INSTEAD: Final = (
    "hosts in the proportions of Google's table of 2011, and the made workload `google:N` of "
    "`fuga simulate`, its VMs twice as large"
)


def google_hosts(number: int, seed: int) -> IntArray:
    """Return cores and MiB of hosts in the proportions of Google's table, shuffled, (H, 2)."""
    rows = [(cores, mib) for count, cores, mib in hosts_like_google(number) for _ in range(count)]
    hosts = np.array(rows, dtype=np.int64)
    return np.random.default_rng([seed, number]).permutation(hosts)


def google_trace(
    hosts: IntArray, *, days: float, tenants: int, load: float, lives: int, seed: int
) -> ListedTrace:
    """Return a trace like Google's that requests ``load`` times the hosts' cores."""
    core_seconds = SIZE * lives * _CORE_SECONDS
    number = int(load * int(hosts[:, 0].sum()) * days * DAY_S / core_seconds)
    made = Workload(resources=RESOURCES, requests=number, days=days, tenants=tenants, seed=seed)
    return ListedTrace(
        resources=RESOURCES,
        parts=[
            dataclasses.replace(
                chunk, demand=chunk.demand * SIZE, lifetime_s=chunk.lifetime_s * lives
            )
            for chunk in made.chunks()
        ],
    )


def tenants_of(trace: ListedTrace) -> Sequence[str]:
    """Return the tenants with requests in a trace, in order of name."""
    return sorted({tenant for chunk in trace.parts for tenant in chunk.tenant})
