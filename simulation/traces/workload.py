"""Generate a workload of any size in the published shape of Google's.

Few tenants request most VMs; most requests are of one VM and some of very many; most
VMs live minutes and some for days; more arrives by day than by night. Hosts are of
the classes of the cell that Google published, in its proportions.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from placement import FloatArray
from simulation.errors import InputError
from simulation.traces.chunks import Chunk
from simulation.traces.native import CHUNK_ROWS
from simulation.traces.request_constraints import RequestConstraints

PREFIX: Final = "google:"
_FORM: Final = re.compile(r"google:(\d+)(?::(\d+(?:\.\d+)?)d)?(?::(\d+)t)?")
_DAY_S: Final = 86_400.0
#: VMs: cores, MiB, and their part of the requests.
_TYPES: Final = (
    (1, 1024, 0.45),
    (1, 3072, 0.25),
    (2, 6144, 0.17),
    (4, 12288, 0.09),
    (8, 24576, 0.04),
)
#: Number of machines, and their CPU and memory in parts of the largest's.
_MACHINES: Final = (
    (6732, 0.50, 0.50),
    (3863, 0.50, 0.25),
    (1001, 0.50, 0.75),
    (795, 1.00, 1.00),
    (126, 0.25, 0.25),
    (52, 0.50, 0.12),
)
#: The largest machine of Google's tables, whose sizes are parts of it.
LARGEST_CORES, LARGEST_MIB = 64, 256 * 1024
_MAX_VMS: Final = 500  #: of one request
_TENANT_TAIL: Final = 1.1  #: weight of the n-th tenant is n to the minus this
_COUNT_TAIL: Final = 1.4  #: P(count >= n) falls as n to the minus this
_LIFE_MEDIAN_S, _LIFE_SPREAD = 900.0, 1.8  #: log-normal
_LONGEST_S: Final = 30 * _DAY_S
_SWING: Final = 0.5  #: of arrivals over a day, in parts of their mean


def hosts_like_google(number: int) -> list[tuple[int, int, int]]:
    """Return host classes like Google's, ``number`` hosts in all: count, cores and MiB of each."""
    total = sum(count for count, *_ in _MACHINES)
    exact = [number * count / total for count, *_ in _MACHINES]
    counts = [int(each) for each in exact]
    largest_rest = sorted(range(len(exact)), key=lambda place: counts[place] - exact[place])
    for place in largest_rest[: number - sum(counts)]:
        counts[place] += 1
    return [
        (count, round(cpu * LARGEST_CORES), round(memory * LARGEST_MIB))
        for count, (_, cpu, memory) in zip(counts, _MACHINES, strict=True)
        if count
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A generated trace; equal parameters and seeds give equal traces.

    Parameters
    ----------
    requests : int
    days : float
        In which they arrive.
    tenants : int
    seed : int
    """

    resources: tuple[str, ...]
    requests: int
    days: float = 1.0
    tenants: int = 100
    seed: int = 0

    def chunks(self) -> Iterator[Chunk]:
        """Generate the requests from the beginning, chunk by chunk."""
        rng = np.random.default_rng([self.seed, self.requests])
        names = [f"tenant-{n:0{len(str(self.tenants))}}" for n in range(1, self.tenants + 1)]
        weights = np.arange(1, self.tenants + 1, dtype=np.float64) ** -_TENANT_TAIL
        place = {name: index for index, name in enumerate(self.resources)}
        sizes = np.zeros((len(_TYPES), len(self.resources)), dtype=np.int64)
        for row, (cores, memory_mib, _) in enumerate(_TYPES):
            sizes[row, place["vcpus"]], sizes[row, place["memory_mib"]] = cores, memory_mib
        part_of_type = np.array([part for *_, part in _TYPES])
        passed, made = 0.0, 0
        while made < self.requests:
            number = min(CHUNK_ROWS, self.requests - made)
            steps = passed + np.cumsum(rng.exponential(size=number))
            passed = float(steps[-1])
            tenants = rng.choice(self.tenants, number, p=weights / weights.sum())
            counts = np.minimum(1 + np.floor(rng.pareto(_COUNT_TAIL, number)), _MAX_VMS)
            lives = rng.lognormal(math.log(_LIFE_MEDIAN_S), _LIFE_SPREAD, number)
            made += number
            yield Chunk(
                arrival_s=self._times(steps / self.requests),
                lifetime_s=np.ceil(np.minimum(lives, _LONGEST_S)),
                tenant=tuple(names[tenant] for tenant in tenants.tolist()),
                demand=sizes[rng.choice(len(_TYPES), number, p=part_of_type)],
                count=counts.astype(np.int64),
                min_count=np.ones(number, dtype=np.int64),
                request_constraints=(RequestConstraints(),) * number,
                read=made / self.requests,
            )

    def _times(self, parts: FloatArray) -> FloatArray:
        """Return the arrival times at fractions of all requests; fewer arrive by night."""
        span_s = self.days * _DAY_S
        grid = np.linspace(0.0, 1.5 * span_s, 4096)
        angle = 2 * math.pi / _DAY_S
        arrived = (grid + _SWING / angle * (1 - np.cos(angle * grid))) / span_s
        times: FloatArray = np.round(np.interp(parts, arrived, grid), 3)
        return times


def parse_workload(spec: str, resources: tuple[str, ...], seed: int) -> Workload:
    """Return the generated workload that ``google:REQUESTS[:DAYSd][:TENANTSt]`` describes."""
    found = _FORM.fullmatch(spec)
    if found is None or not 1 <= int(found[1]) <= 10**8:
        raise InputError(
            spec, "expected google:REQUESTS[:DAYSd][:TENANTSt], as google:10000:2d:50t"
        )
    days, tenants = float(found[2] or 1), int(found[3] or 100)
    if not 0 < days <= 3650 or not 1 <= tenants <= 1_000_000:
        raise InputError(spec, "expected 3650 days and 1,000,000 tenants at most")
    return Workload(
        resources=resources, requests=int(found[1]), days=days, tenants=tenants, seed=seed
    )
