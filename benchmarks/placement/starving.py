"""Print what large VMs wait for that starve among small ones: patience against room by moves.

    python -m benchmarks.placement.starving [--policies best_fit_drfh] [--seeds 3] [--days 2]

Small VMs of one to four cores, as many as fill the hosts, come and go, and the smallest gap is
refilled at once. Another tenant asks for a VM as large as a host every three hours, for two
hours. Each policy decides three times:

nothing   patience 0: whoever waits for room for long waits on
patience  after 12 slots hosts, at most a tenth, are held back for requests that starve
room      after as many slots, moves make room (`--room`), and no hosts are held back

"waited" is in slots, of large VMs that were placed, the mean and the longest; "idle" is what
part of all cores, over all slots, was free but held for requests that starved; "small" is the
mean wait of small VMs. All are means over seeds; GiB are of one run.
"""

from __future__ import annotations

import csv
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow.parquet as pq

from benchmarks.kit import parser
from simulation import MoveOptions, RunSpec, TraceSpec, simulate

HOSTS: Final = 40
CORES: Final = 32
MIB_PER_CORE: Final = 4096
SLOT_S: Final = 300.0
LARGE: Final = "large"
_DAY_S: Final = 86_400.0
_EVERY_S: Final = 3 * 3600.0
_LARGE_LIFE_S: Final = 2 * 3600.0
_SMALL_LIFE_S: Final = 4 * 3600.0
_SIZES: Final = (1, 2, 4)
_LOAD: Final = 0.93  #: of all cores, that small VMs would hold if all were placed at once
WAYS: Final[Mapping[str, tuple[Mapping[str, Any], MoveOptions]]] = {
    "nothing": ({"patience": 0}, MoveOptions(measured=True)),
    "patience": ({"patience": 12, "held_part": 0.1}, MoveOptions(measured=True)),
    "room": ({}, MoveOptions.from_options(room="")),
}


def write_trace(path: Path, days: float, seed: int) -> None:
    """Write small VMs of three tenants, and large ones of a fourth."""
    rng = np.random.default_rng(seed)
    size = sum(_SIZES) / len(_SIZES)
    number = int(days * _DAY_S * _LOAD * HOSTS * CORES / size / _SMALL_LIFE_S)
    rows = [
        (
            float(at_s),
            float(rng.exponential(_SMALL_LIFE_S)),
            f"small-{rng.integers(3)}",
            int(rng.choice(_SIZES)),
        )
        for at_s in rng.uniform(0, days * _DAY_S, number)
    ]
    # The hosts are full before the first large VM comes.
    begin_s = 2 * _SMALL_LIFE_S
    rows += [
        (at_s, _LARGE_LIFE_S, LARGE, CORES)
        for at_s in np.arange(begin_s, days * _DAY_S - _EVERY_S, _EVERY_S).tolist()
    ]
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["arrival_s", "lifetime_s", "tenant", "vcpus", "memory_mib"])
        for at_s, lifetime_s, tenant, cores in sorted(rows):
            writer.writerow(
                [f"{at_s:.3f}", f"{lifetime_s:.3f}", tenant, cores, cores * MIB_PER_CORE]
            )


def main(argv: Sequence[str] | None = None) -> None:
    given = parser(
        __doc__, policies=(["best_fit_drfh"], "with commas between"), seeds=3, days=2.0
    ).parse_args(argv)
    print(
        f"{'policy':<15}{'way':<10}{'large':>7}{'placed':>8}{'waited':>8}{'longest':>9}{'idle':>8}"
        f"{'in use':>8}{'small s':>9}{'moves':>7}{'GiB':>8}"
    )
    with tempfile.TemporaryDirectory() as folder:
        for policy in given.policies:
            for way in WAYS:
                runs = [
                    _run(Path(folder), policy, way, seed, given.days) for seed in range(given.seeds)
                ]
                print(f"{policy:<15}{way:<10}{_shown(runs)}", flush=True)


def _run(folder: Path, policy: str, way: str, seed: int, days: float) -> list[float]:
    """Return the figures of one run."""
    trace, out = folder / f"trace-{seed}.csv", folder / f"{policy}-{way}-{seed}"
    if not trace.exists():
        write_trace(trace, days, seed)
    parameters, moving = WAYS[way]
    spec = RunSpec(
        name=out.name,
        trace=TraceSpec(path=str(trace)),
        hosts=f"{HOSTS}:{CORES}c:{CORES * MIB_PER_CORE // 1024}g",
        policy=policy,
        parameters=parameters,
        slot_length_s=SLOT_S,
        seed=seed,
    )
    summary = simulate(replace(spec, moving=moving), out)
    table = pq.read_table(out / "placements.parquet").to_pydict()
    large = np.array([tenant == LARGE for tenant in table["tenant"]])
    waits = (np.array(table["start_s"]) - np.array(table["arrival_s"])) / SLOT_S
    tenants = pq.read_table(out / "tenants.parquet").to_pydict()
    requested = dict(zip(tenants["tenant"], tenants["vms_asked"], strict=True))[LARGE]
    return [
        requested,
        large.sum(),
        waits[large].mean() if large.any() else np.nan,
        waits[large].max(initial=0),
        summary["moves"]["held_idle_part"],
        summary["used"]["vcpus"]["mean"],
        waits[~large].mean() * SLOT_S,
        summary["moves"]["moved"],
        summary["moves"]["moved_gib"],
    ]


def _shown(runs: Sequence[Sequence[float]]) -> str:
    means = np.array(runs, dtype=np.float64).mean(axis=0)
    requested, placed, waited, _, idle, used, small_s, moves, gib = means.tolist()
    longest = max(run[3] for run in runs)
    return (
        f"{requested:>7.1f}{placed:>8.1f}{waited:>8.1f}{longest:>9.0f}{100 * idle:>6.2f} %"
        f"{100 * used:>6.1f} %{small_s:>9.1f}{moves:>7.0f}{gib:>8.0f}"
    )


if __name__ == "__main__":
    main()
