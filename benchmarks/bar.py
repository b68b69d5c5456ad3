"""Print policies over traces, and where the default misses its bar.

    python -m benchmarks.bar [DIR] [--only azure,google] [--policies fuga,…] [--seeds 3] [--jobs 1]

Traces that need no files, others for each seed:

azure     VMs drawn from the sample of Azure's trace (two days, 20 tenants) on 63 of Google's
          machines, too few for the second day
google    a workload of the published shape of Google's (two days, 50 tenants) on 60 machines

With DIR, a folder as `benchmarks.real_traces` has it, also the traces there: `huawei` and
`gpu` as in that benchmark, and `held-out`, other parts of Azure's trace than the sample: for
each seed another sixteenth of the batches, the first two days, on the same 63 machines. Of `huawei`
and `gpu` there is one trace, and only what policies draw at random differs from seed to seed.

Each figure is the mean over seeds, with the least and the largest in brackets. The bar of the
default, `fuga`: against the best of `best_fit_drfh` and `first_fit_drfh`, both without patience, at
most half a point fewer VMs placed, at most 5 % more waiting, and no larger a distance from
fair shares. Waits are of VMs that were placed: who places more of those that waited long has a
longer mean.
"""

from __future__ import annotations

import json
import multiprocessing
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow.parquet

from benchmarks.drawn_trace import SAMPLE, write_drawn
from benchmarks.kit import parser
from benchmarks.placement.rounds import progress
from benchmarks.real_traces import TRACES, tasks_since
from simulation import RunSpec, TraceSpec, simulate

DEFAULT: Final = "fuga"
#: Policies that the default is compared with.
REFERENCES: Final = ("best_fit_drfh:patience=0", "first_fit_drfh:patience=0")
POLICIES: Final = (DEFAULT, "fuga:patience=12:held_part=0.1", *REFERENCES)
#: Of VMs placed, of the mean wait, and of the distance from fair shares.
MAX_FEWER: Final = 0.005
MAX_LONGER: Final = 1.05
MAX_UNFAIRER: Final = 0.0005  #: what the table does not show is no difference
_COLUMNS: Final = (
    ("placed", "{:.2f} %", 100, 26),
    ("wait_s", "{:,.0f} s", 1, 26),
    ("unfair", "{:.2f} %", 100, 24),
)
_MACHINES: Final = str(SAMPLE.parent / "google_2011_machines_sample.csv")
_SAMPLE_VMS, _SAMPLE_DAYS = 11_118, 2.0
_HELD_OUT: Final = "azure_v1_requests/requests_d24_d29.parquet"
#: The sample has the batches whose number leaves 5 when it is divided by 16.
_PARTS, _OF_SAMPLE = 16, 5


@dataclass(frozen=True, slots=True)
class Found:
    """The figures of one run."""

    placed: float  #: part of the VMs requested
    wait_s: float  #: mean
    unfair: float  #: distance from fair shares


def main(argv: Sequence[str] | None = None) -> None:
    arguments = parser(
        __doc__, only=([], "traces, with commas between"), policies=[*POLICIES], seeds=3, jobs=1
    )
    arguments.add_argument("data", type=Path, metavar="DIR", nargs="?")
    given = arguments.parse_args(argv)
    traces = given.only or [*_traces_there(given.data)]
    policies = given.policies
    found: defaultdict[tuple[str, str], list[Found]] = defaultdict(list)
    say = progress()
    with ProcessPoolExecutor(given.jobs, multiprocessing.get_context("spawn")) as pool:
        runs = {
            pool.submit(run, given.data, trace, policy, seed): (trace, policy)
            for trace in traces
            for policy in policies
            for seed in range(given.seeds)
        }
        for number, done in enumerate(as_completed(runs), 1):
            found[runs[done]].append(done.result())
            say(f"{number} of {len(runs)} runs: {' '.join(runs[done])}")
    width = max(map(len, policies)) + 2
    print(f"{'trace':<10}{'policy':<{width}}{'placed':>26}{'mean wait':>26}{'off fair':>24}")
    for trace in traces:
        for policy in policies:
            print(f"{trace:<10}{policy:<{width}}" + "".join(_cells(found[trace, policy])))
        for line in misses({policy: found[trace, policy] for policy in policies}):
            print(f"{'':<10}{line}")


def _traces_there(data: Path | None) -> Iterator[str]:
    yield from ("azure", "google")
    if data is not None:
        files = {"held-out": _HELD_OUT} | {name: TRACES[name].path for name in ("huawei", "gpu")}
        yield from (name for name, path in files.items() if (data / path).is_file())


def run(data: Path | None, trace: str, policy: str, seed: int) -> Found:
    """Simulate one trace under one policy."""
    name, *words = policy.split(":")
    parameters = {key: json.loads(value) for key, value in (each.split("=", 1) for each in words)}
    with tempfile.TemporaryDirectory() as folder:
        spec = RunSpec(
            name="run", policy=name, parameters=parameters, seed=seed,
            **_trace_options(data, trace, seed, Path(folder)),
        )  # fmt: skip
        summary = simulate(spec, Path(folder) / "run")
    return Found(
        placed=summary["placed_part"],
        wait_s=summary["wait_s"]["mean"],
        unfair=summary["fair_distance"],
    )


def _trace_options(data: Path | None, trace: str, seed: int, folder: Path) -> dict[str, Any]:
    """Return the fields of a run's spec that depend on the trace."""
    if trace == "google":
        return {
            "trace": TraceSpec(path="google:6000:2d:50t"),
            "hosts": "google:60",
            "slot_length_s": 300.0,
        }
    if trace == "azure":
        drawn = folder / "drawn.csv"
        write_drawn(drawn, _SAMPLE_VMS, _SAMPLE_DAYS, seed)
        return {
            "trace": TraceSpec(path=str(drawn), tenants=20),
            "hosts": _MACHINES,
            "slot_length_s": 300.0,
        }
    if data is None:
        raise SystemExit(f"{trace}: needs DIR")
    if trace == "held-out":
        return {
            "trace": TraceSpec(path=str(_held_out(data, seed, folder)), tenants=20),
            "hosts": _MACHINES,
            "slot_length_s": 300.0,
            "until_s": 2_100_000 + _SAMPLE_DAYS * 86_400,
        }
    real = TRACES[trace]
    path = data / real.path
    if real.since_s:
        path = tasks_since(real.since_s, path, folder / "trace.csv")
    return {
        "trace": TraceSpec(path=str(path)),
        "hosts": ",".join(real.hosts),
        "slot_length_s": real.slot_length_s,
    }


def _held_out(data: Path, seed: int, folder: Path) -> Path:
    """Write a sixteenth of the batches of Azure's trace, never the sample's: 15 seeds have one."""
    part = [each for each in range(_PARTS) if each != _OF_SAMPLE][seed]
    rows = pyarrow.parquet.read_table(data / _HELD_OUT)
    left_over = np.asarray(rows["batch_id"]) % _PARTS
    pyarrow.parquet.write_table(rows.filter(left_over == part), folder / "held-out.parquet")
    return folder / "held-out.parquet"


def misses(found: Mapping[str, Sequence[Found]]) -> list[str]:
    """Return the measures in which the default policy misses its bar, in means over seeds."""
    own, others = found.get(DEFAULT), [found[name] for name in REFERENCES if name in found]
    if not own or not others:
        return []
    placed, wait_s, unfair = (
        [_mean(each, name) for each in (own, *others)] for name in ("placed", "wait_s", "unfair")
    )
    texts = []
    if placed[0] < max(placed[1:]) - MAX_FEWER:
        texts.append(f"misses: {100 * (max(placed[1:]) - placed[0]):.2f} points fewer placed")
    if wait_s[0] > MAX_LONGER * min(wait_s[1:]):
        texts.append(f"misses: waits {wait_s[0] / min(wait_s[1:]):.2f} times as long")
    if unfair[0] > min(unfair[1:]) + MAX_UNFAIRER:
        texts.append(f"misses: {100 * (unfair[0] - min(unfair[1:])):.2f} points less fair")
    return texts


def _mean(runs: Iterable[Found], name: str) -> float:
    return float(np.mean([getattr(each, name) for each in runs]))


def _cells(runs: Sequence[Found]) -> Iterator[str]:
    for name, form, scale, width in _COLUMNS:
        values = [scale * getattr(each, name) for each in runs]
        least, most = form.format(min(values)).split()[0], form.format(max(values)).split()[0]
        mean = form.format(float(np.mean(values)))
        yield f"{f'{mean} ({least} to {most})':>{width}}"


if __name__ == "__main__":
    main()
