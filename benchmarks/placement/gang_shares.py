"""Print what a tenant loses whose requests are all gangs (`min_count` = `count`).

    python -m benchmarks.placement.gang_shares [--policies fuga,best_fit_drfh] [--parts 12]
        [--gang-patience 1]

Ten equal tenants request batches of VMs of one to eight cores for 1.7 times what 40 hosts have,
two days long. In the second run of each part, one tenant's requests are all gangs. "ratio" is
what that tenant's VMs held, in core-hours, as a part of what they held in the first run; "others"
is the same of all other tenants, "use" the part of all cores in use. Means over parts, with 95 %
intervals.
"""

from __future__ import annotations

import csv
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow.parquet as pq

from benchmarks.kit import parser
from benchmarks.placement.rounds import progress
from placement import FloatArray
from simulation import RunSpec, TraceSpec, simulate
from simulation.metrics.confidence import half_width

HOSTS: Final = 40
CORES: Final = 32
MIB_PER_CORE: Final = 4096
SLOT_S: Final = 300.0
TENANTS: Final = 10
_LOAD: Final = 1.7
_DAYS: Final = 2
_DAY_S: Final = 86_400.0
_LIFE_S: Final = 2 * 3600.0
_SIZES: Final = (1, 2, 4, 8)
_MEAN_COUNT: Final = 4
_MAX_COUNT: Final = 16


@dataclass(frozen=True, slots=True)
class Requests:
    """The requests of a part, in order of arrival, each with n values."""

    arrival_s: FloatArray
    lifetime_s: FloatArray
    tenant: FloatArray
    cores: FloatArray
    count: FloatArray


def main(argv: Sequence[str] | None = None) -> None:
    given = parser(
        __doc__,
        policies=["fuga", "best_fit_drfh"],
        parts=12,
        gang_patience=(1, "slots until hosts are reserved for a gang; 0: never"),
    ).parse_args(argv)
    parameters = {"gang_patience": given.gang_patience}
    say = progress()
    print(f"{'policy':<16}{'ratio':>16}{'others':>16}{'use':>16}{'use without':>16}")
    for policy in given.policies:
        rows = []
        for part in range(given.parts):
            rows.append(measure(policy, parameters, part))
            say(f"{policy}: {part + 1} of {given.parts} parts")
        cells = (
            f"{np.mean(values):.3f} ± {half_width(values):.3f}"
            for values in zip(*rows, strict=True)
        )
        print(f"{policy:<16}" + "".join(f"{cell:>16}" for cell in cells), flush=True)


def measure(
    policy: str, parameters: Mapping[str, Any], part: int
) -> tuple[float, float, float, float]:
    """Return the ratio of the tenant with gangs, that of the others, and the use of both runs."""
    requests = draw_requests(part)
    without, with_gangs = (
        held_core_hours(requests, policy, parameters, gangs=gangs, seed=part)
        for gangs in (False, True)
    )
    pool = HOSTS * CORES * _DAYS * _DAY_S / 3600
    return (
        with_gangs[0] / without[0],
        with_gangs[1:].sum() / without[1:].sum(),
        with_gangs.sum() / pool,
        without.sum() / pool,
    )


def draw_requests(seed: int) -> Requests:
    """Draw the requests of a part."""
    rng = np.random.default_rng(seed)
    # The mean of a geometric number of VMs, cut at the maximum, is a little lower.
    demand = float(np.mean(_SIZES)) * _MEAN_COUNT
    number = int(_LOAD * _DAYS * _DAY_S * HOSTS * CORES / demand / _LIFE_S)
    return Requests(
        arrival_s=np.sort(rng.uniform(0, _DAYS * _DAY_S, number)),
        lifetime_s=rng.exponential(_LIFE_S, number),
        tenant=rng.integers(TENANTS, size=number).astype(float),
        cores=rng.choice(_SIZES, number).astype(float),
        count=np.minimum(rng.geometric(1 / _MEAN_COUNT, number), _MAX_COUNT).astype(float),
    )


def held_core_hours(
    requests: Requests, policy: str, parameters: Mapping[str, Any], *, gangs: bool, seed: int
) -> FloatArray:
    """Simulate, and return the core-hours that each tenant's VMs held, (`TENANTS`,)."""
    end_s = _DAYS * _DAY_S
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        _write(requests, path / "trace.csv", gangs=gangs)
        spec = RunSpec(
            name="run",
            policy=policy,
            parameters=parameters,
            seed=seed,
            trace=TraceSpec(path=str(path / "trace.csv")),
            hosts=f"{HOSTS}:{CORES}c:{CORES * MIB_PER_CORE // 1024}g",
            slot_length_s=SLOT_S,
            until_s=end_s,
        )
        simulate(spec, path / "run")
        table = pq.read_table(path / "run" / "placements.parquet")
    start_s, ends_s, request, count = (
        table[name].to_numpy().astype(float) for name in ("start_s", "end_s", "request", "count")
    )
    seconds = np.maximum(np.minimum(np.nan_to_num(ends_s, nan=end_s), end_s) - start_s, 0.0)
    rows = request.astype(int)
    held = seconds * requests.cores[rows] * count / 3600
    return np.bincount(requests.tenant[rows].astype(int), weights=held, minlength=TENANTS)


def _write(requests: Requests, path: Path, *, gangs: bool) -> None:
    """Write the requests as a trace; those of the first tenant are gangs if ``gangs``."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(
            ["arrival_s", "lifetime_s", "tenant", "count", "min_count", "vcpus", "memory_mib"]
        )
        for arrival_s, lifetime_s, tenant, cores, count in zip(
            requests.arrival_s, requests.lifetime_s, requests.tenant, requests.cores,
            requests.count, strict=True,
        ):  # fmt: skip
            at_once = count if gangs and tenant == 0 else 1
            writer.writerow(
                [
                    *(f"{arrival_s:.3f}", f"{lifetime_s:.3f}", f"tenant-{tenant:.0f}"),
                    *(int(count), int(at_once), int(cores), int(cores) * MIB_PER_CORE),
                ]
            )


if __name__ == "__main__":
    main()
