"""Run real traces with four policies each and print them side by side.

    python -m benchmarks.real_traces DIR [--only azure,dlrm] [--policies fuga,slots] [--jobs 2]

DIR has a folder for each trace, as their publishers' tables were converted:
`azure_v1_requests`, `huawei_east_1`, `alibaba_gpu_2023`, `alibaba_dlrm_2025`. Traces
that are not there are left out. Hosts are chosen so that the busiest hours ask
for more than there is; those of Alibaba's GPU cluster are its own. Slots last five
minutes, of the two traces of Alibaba, which are of months, half an hour. Seconds
are of the processor; MiB are the peak of a run's process.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from simulation import RunSpec, TraceSpec, simulate
from simulation.summary import measure

POLICIES: Final = ("fuga", "best_fit_drfh", "first_fit", "slots")


@dataclass(frozen=True, slots=True)
class RealTrace:
    path: str
    hosts: str  #: as of `fuga simulate`; a name with a slash is a file of DIR
    slot_length_s: float = 300.0


TRACES: Final[Mapping[str, RealTrace]] = {
    "azure": RealTrace("azure_v1_requests/requests_d24_d29.parquet", "1000:64c:256g"),
    "huawei": RealTrace("huawei_east_1/requests_d00_d20.parquet", "60:64c:128g"),
    "gpu": RealTrace("alibaba_gpu_2023/pods.csv.gz", "alibaba_gpu_2023/nodes.csv.gz", 1800.0),
    "dlrm": RealTrace(
        "alibaba_dlrm_2025/instances.csv.gz",
        "1100:192c:1024g:1500d:100rdma_percent,800:192c:1024g:6000d:8gpu:100rdma_percent",
        1800.0,
    ),
}
_HEAD: Final = (
    f"{'trace':<8}{'policy':<15}{'VMs':>9}{'placed':>10}{'CPU':>9}{'memory':>9}"
    f"{'wait mean':>11}{'p99':>9}{'longest':>10}{'unfair':>9}{'events/s':>10}{'s':>7}{'MiB':>6}"
)


def main(argv: Sequence[str] | None = None) -> None:
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("data", type=Path, metavar="DIR")
    arguments.add_argument("--only", default=",".join(TRACES))
    arguments.add_argument("--policies", default=",".join(POLICIES))
    arguments.add_argument("--jobs", type=int, default=1)
    given = arguments.parse_args(argv)
    chosen = {name: TRACES[name] for name in given.only.split(",")}
    runs = [
        (name, trace, policy)
        for name, trace in chosen.items()
        if (given.data / trace.path).is_file()
        for policy in given.policies.split(",")
    ]
    print(
        "CPU and memory are the parts in use in the mean over time, waits in seconds from arrival\n"
        "to start, unfair the distance from fair shares in parts of the mean fair share."
    )
    print(_HEAD, flush=True)
    # A process for each run: the peak of its memory is its own.
    with ProcessPoolExecutor(
        given.jobs, multiprocessing.get_context("spawn"), max_tasks_per_child=1
    ) as pool:
        for run in as_completed(pool.submit(row_of, given.data, *each) for each in runs):
            print(run.result(), flush=True)


def row_of(data: Path, name: str, trace: RealTrace, policy: str) -> str:
    spec = RunSpec(
        name=name,
        trace=TraceSpec(path=str(data / trace.path)),
        hosts=str(data / trace.hosts) if "/" in trace.hosts else trace.hosts,
        policy=policy,
        slot_length_s=trace.slot_length_s,
    )
    started = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        found = simulate(spec, Path(folder))
    seconds = time.process_time() - started
    mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    cores = next(iter(found["used"]))
    return (
        f"{name:<8}{policy:<15}{found['vms']['asked']:>9,}{_percent(found, 'placed_part'):>10}"
        f"{_percent(found, f'used.{cores}.mean'):>9}{_percent(found, 'used.memory_mib.mean'):>9}"
        f"{measure(found, 'wait_s.mean') or 0:>11,.0f}{measure(found, 'wait_s.p99') or 0:>9,.0f}"
        f"{measure(found, 'wait_s.max') or 0:>10,.0f}{_percent(found, 'fair_distance'):>9}"
        f"{found['timing']['events'] / seconds:>10,.0f}{seconds:>7.0f}{mib:>6}"
    )


def _percent(found: Mapping[str, Any], path: str) -> str:
    value = measure(found, path)
    return "-" if value is None else f"{100 * value:.2f} %"


if __name__ == "__main__":
    main()
