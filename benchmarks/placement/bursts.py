"""Print how long tenants that come in bursts wait beside steady ones, with and without memory.

    python -m benchmarks.placement.bursts [--parts 12] [--days 3] [--half-life-s 21600]

Four tenants together request 95 % of the pool, all the time. Four others come in bursts of three
fifths of the pool, each every eighteen hours or so. VMs run for an hour in the mean. Each part is a
trace of its own. Waits are means over all VMs, up to the end for those that were not placed;
quotients are paired, part by part, with a 95 % interval of their mean.
"""

from __future__ import annotations

import csv
import dataclasses
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.kit import parser
from simulation import RunSpec, TraceSpec
from simulation.experiments.run import simulate_in_memory
from simulation.metrics.confidence import half_width

_DAY_S: Final = 86_400
_HOSTS: Final = "10:32c:128g"
_CORES: Final = 320
_TENANTS: Final = 4  #: of each kind
_STEADY_LOAD: Final = 0.95  #: requested by all steady tenants, of the pool
_BURST: Final = 0.6  #: requested at once by a bursty tenant, of the pool
_LIFE_S: Final = 3600.0  #: mean
_BURST_EVERY_S: Final = 64_800.0
_SIZES: Final = ((2, 8192), (4, 16384), (8, 32768))  #: cores and MiB of a VM
_SLOT_S: Final = 300.0
_STEADY, _BURSTY = "steady", "bursty"


def write_bursts(path: Path, days: float, seed: int) -> None:
    """Write a trace of steady and bursty tenants, bursts last ten minutes."""
    rng = np.random.default_rng(seed)
    cores = sum(size for size, _ in _SIZES) / len(_SIZES)
    rate = _STEADY_LOAD * _CORES / _TENANTS / cores / _LIFE_S  # VMs per second of each tenant
    rows = []
    for number in range(_TENANTS):
        count = rng.poisson(rate * days * _DAY_S)
        rows += [(at, f"{_STEADY}-{number}") for at in rng.uniform(0, days * _DAY_S, count)]
        begin = rng.uniform(0, _BURST_EVERY_S)
        while begin < days * _DAY_S:
            count = rng.poisson(_BURST * _CORES / cores)
            rows += [(begin + at, f"{_BURSTY}-{number}") for at in rng.uniform(0, 600, count)]
            begin += rng.uniform(0.7, 1.3) * _BURST_EVERY_S
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["arrival_s", "lifetime_s", "tenant", "vcpus", "memory_mib", "count"])
        for at, tenant in sorted(row for row in rows if row[0] < days * _DAY_S):
            size, memory = _SIZES[int(rng.integers(len(_SIZES)))]
            life_s = max(60, round(rng.exponential(_LIFE_S)))
            writer.writerow([f"{at:.0f}", life_s, tenant, size, memory, 1])


def main(argv: Sequence[str] | None = None) -> None:
    given = parser(
        __doc__, parts=12, days=3.0, half_life_s=21_600, policy="fuga", first_seed=1
    ).parse_args(argv)
    print(f"{'part':>4}{'bursty s':>10}{'steady s':>10}{'with memory':>13}{'steady s':>10}")
    quotients: dict[str, list[float]] = {_BURSTY: [], _STEADY: []}
    means: list[list[float]] = []
    placed: list[float] = []
    for part in range(given.parts):
        plain, plain_placed = run(part + given.first_seed, given.days, given.policy, 0)
        memory, memory_placed = run(
            part + given.first_seed, given.days, given.policy, given.half_life_s
        )
        for kind, found in quotients.items():
            found.append(memory[kind] / max(plain[kind], 1.0))
        placed.append(100 * (memory_placed - plain_placed))
        means.append([plain[_BURSTY], plain[_STEADY], memory[_BURSTY], memory[_STEADY]])
        a, b, c, d = means[-1]
        print(f"{part:>4}{a:>10,.0f}{b:>10,.0f}{c:>13,.0f}{d:>10,.0f}", flush=True)
    a, b, c, d = np.mean(means, axis=0)
    print(f"{'mean':>4}{a:>10,.0f}{b:>10,.0f}{c:>13,.0f}{d:>10,.0f}")
    for kind, found in quotients.items():
        print(f"{kind}: × {np.mean(found):.2f} ± {half_width(found):.2f}")
    print(f"placed: {np.mean(placed):+.2f} ± {half_width(placed):.2f} points")


def run(seed: int, days: float, policy: str, half_life_s: int) -> tuple[dict[str, float], float]:
    """Simulate one part; return the mean wait of each kind of tenant, and the part placed."""
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "bursts.csv"
        write_bursts(trace, days, seed)
        spec = RunSpec(
            name=policy,
            policy=policy,
            trace=TraceSpec(path=str(trace)),
            hosts=_HOSTS,
            until_s=days * _DAY_S,
            ideal_every=10**9,
            slot_length_s=_SLOT_S,
        )
        observed = simulate_in_memory(dataclasses.replace(spec, fairness_memory_s=half_life_s))
    engine, recorder = observed.engine, observed.recorder
    waited = recorder.waited_s.copy()
    waiting = engine.waiting
    until_s = days * _DAY_S
    np.add.at(waited, waiting.tenant, (until_s - waiting.since_s) * waiting.count)
    requested = recorder.tenants.rows[:, 0]
    kinds = [name.partition("-")[0] for name in engine.names.tenants.values]
    return {
        kind: float(waited[rows].sum() / requested[rows].sum())
        for kind in (_STEADY, _BURSTY)
        for rows in [np.array([each == kind for each in kinds])]
    }, observed.summary["placed_part"]


if __name__ == "__main__":
    main()
