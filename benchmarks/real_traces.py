"""Run real traces with four policies each and print them side by side.

    python -m benchmarks.real_traces DIR [--only azure,dlrm] [--policies fuga,slots] [--jobs 2]
    python -m benchmarks.real_traces DIR --only huawei --policies fuga:patience=3:held_part=0.3
    python -m benchmarks.real_traces DIR --only gpu \
        --policies 'fuga,fuga:ranking=["cpu_milli","memory_mib","gpu_milli"]'

DIR has a folder for each trace, as their publishers' tables were converted:
`azure_v1_requests`, `huawei_east_1`, `alibaba_gpu_2023`, `alibaba_dlrm_2025`. Traces
that are not there are left out. Hosts are chosen so that the busiest hours ask for
about as much as there is, and are named above the table. Those of Alibaba's GPU
cluster are its own in kind, one of some hundred: its published tasks are a sample
that never asks for more than 66 of its 6,212 GPUs. All but 58 of these tasks are of
the last 34 days, so the trace begins with those, and with what then ran.
Slots last five minutes, of the two traces of Alibaba half an hour. Seconds are of
the processor; MiB are the peak of a run's process.
"""

from __future__ import annotations

import csv
import gzip
import json
import multiprocessing
import re
import resource
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.kit import parser
from simulation import RunSpec, TraceSpec, simulate
from simulation.metrics.summary import measure_at

POLICIES: Final = ("fuga", "best_fit_drfh", "first_fit", "slots")


@dataclass(frozen=True, slots=True)
class RealTrace:
    path: str
    hosts: tuple[str, ...]  #: as of `fuga simulate`
    slot_length_s: float = 300.0
    since_s: int = 0  #: the trace begins then, with what runs


TRACES: Final[Mapping[str, RealTrace]] = {
    "azure": RealTrace("azure_v1_requests/requests_d24_d29.parquet", ("1000:64c:256g",)),
    "huawei": RealTrace("huawei_east_1/requests_d00_d20.parquet", ("60:64c:128g",)),
    "gpu": RealTrace(
        "alibaba_gpu_2023/pods.csv.gz",
        (
            "3:96c:384g:8000gpu_milli:label=gpu=G2",
            "4:104c:512g:2000gpu_milli:label=gpu=T4",
            "1:64c:256g:2000gpu_milli:label=gpu=P100",
            "1:128c:768g:8000gpu_milli:label=gpu=G3",
            "1:96c:768g:8000gpu_milli:label=gpu=V100M32",
            "2:32c:256g",
        ),
        slot_length_s=1800.0,
        since_s=10_000_000,
    ),
    "dlrm": RealTrace(
        "alibaba_dlrm_2025/instances.csv.gz",
        ("1800:192c:1024g:3000d:200rdma_percent", "400:96c:512g:3000d:8gpu:400rdma_percent"),
        slot_length_s=1800.0,
    ),
}
#: A comma, unless it stands in a list.
_BETWEEN_POLICIES: Final = re.compile(r",(?![^\[]*\])")
_HEAD: Final = (
    f"{'VMs':>9}{'placed':>10}{'CPU':>9}{'memory':>9}{'GPU':>9}"
    f"{'wait mean':>11}{'p99':>11}{'longest':>11}{'unfair':>9}{'events/s':>10}{'s':>7}{'MiB':>6}"
)


def main(argv: Sequence[str] | None = None) -> None:
    arguments = parser(
        __doc__,
        only=[*TRACES],
        policies=(",".join(POLICIES), "NAME, or NAME:PARAMETER=VALUE:…"),
        jobs=1,
    )
    arguments.add_argument("data", type=Path, metavar="DIR")
    given = arguments.parse_args(argv)
    chosen = {name: TRACES[name] for name in given.only}
    policies = _BETWEEN_POLICIES.split(given.policies)
    width = max(map(len, policies)) + 1
    runs = [
        (name, trace, policy)
        for name, trace in chosen.items()
        if (given.data / trace.path).is_file()
        for policy in policies
    ]
    print(
        "CPU, memory and GPU are the parts in use in the mean over time, waits in seconds from\n"
        "arrival to start, unfair the distance from fair shares in parts of the mean fair share."
    )
    for name, trace in chosen.items():
        print(f"{name}: slots of {trace.slot_length_s:g} s, hosts {' '.join(trace.hosts)}")
    print(f"{'trace':<8}{'policy':<{width}}{_HEAD}", flush=True)
    # A process for each run: the peak of its memory is its own.
    with ProcessPoolExecutor(
        given.jobs, multiprocessing.get_context("spawn"), max_tasks_per_child=1
    ) as pool:
        for run in as_completed(pool.submit(row_of, given.data, width, *each) for each in runs):
            print(run.result(), flush=True)


def row_of(data: Path, width: int, name: str, trace: RealTrace, policy: str) -> str:
    policy_name, *parameters = policy.split(":")
    pairs = [each.split("=", 1) for each in parameters]
    with tempfile.TemporaryDirectory() as folder:
        path = data / trace.path
        if trace.since_s:
            path = tasks_since(trace.since_s, path, Path(folder) / "trace.csv")
        spec = RunSpec(
            name=name,
            trace=TraceSpec(path=str(path)),
            hosts=",".join(trace.hosts),
            policy=policy_name,
            parameters={parameter: json.loads(value) for parameter, value in pairs},
            slot_length_s=trace.slot_length_s,
        )
        started = time.process_time()
        found = simulate(spec, Path(folder) / "run")
        seconds = time.process_time() - started
    mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    cores = next(iter(found["used"]))
    gpus = next((each for each in found["used"] if each.startswith("gpu")), "gpu")
    return (
        f"{name:<8}{policy:<{width}}{found['vms']['asked']:>9,}{_percent(found, 'placed_part'):>10}"
        f"{_percent(found, f'used.{cores}.mean'):>9}{_percent(found, 'used.memory_mib.mean'):>9}"
        f"{_percent(found, f'used.{gpus}.mean'):>9}"
        f"{measure_at(found, 'wait_s.mean') or 0:>11,.0f}"
        f"{measure_at(found, 'wait_s.p99') or 0:>11,.0f}"
        f"{measure_at(found, 'wait_s.max') or 0:>11,.0f}{_percent(found, 'fair_distance'):>9}"
        f"{found['timing']['events'] / seconds:>10,.0f}{seconds:>7.0f}{mib:>6}"
    )


def tasks_since(time_s: int, path: Path, cut: Path) -> Path:
    """Write the tasks of Alibaba's GPU cluster that run at a time or arrive later."""
    with gzip.open(path, "rt", newline="") as file, cut.open("w", newline="") as out:
        rows = csv.DictReader(file)
        writer = csv.DictWriter(out, rows.fieldnames or ())
        writer.writeheader()
        for row in rows:
            if int(row["deletion_time"]) > time_s:
                arrival_s = max(time_s, int(row["creation_time"]))
                writer.writerow({**row, "creation_time": arrival_s})
    return cut


def _percent(found: Mapping[str, Any], path: str) -> str:
    value = measure_at(found, path)
    return "-" if value is None else f"{100 * value:.2f} %"


if __name__ == "__main__":
    main()
