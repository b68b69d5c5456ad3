"""Print the peak of a simulation's memory as its trace grows.

    python -m benchmarks.memory [--requests 10000,100000,1000000] [--policies best_fit_drfh,fuga]

Workloads of the shape of Google's, as many requests a day in each and about three
VMs a request, on 500 of its machines, in a process of their own. MiB are what
`fuga simulate` has at its peak, its imports included, until its files are written;
the last column is what each request more than in the line before has cost. The
limit for a million requests is 2 GiB.
"""

from __future__ import annotations

import multiprocessing
import resource
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Final

from benchmarks.kit import parser
from simulation import RunSpec, TraceSpec, simulate

_REQUESTS_A_DAY: Final = 33_333


def main(argv: Sequence[str] | None = None) -> None:
    given = parser(
        __doc__,
        requests=[10000, 100000, 1000000],
        policies=["best_fit_drfh", "fuga"],
        hosts="google:500",
    ).parse_args(argv)
    head = f"{'policy':<16}{'requests':>10}{'VMs placed':>12}{'seconds':>9}{'MiB':>7}"
    print(f"{head}{'bytes a request':>17}")
    # A process for each run: the peak of its memory is its own.
    with ProcessPoolExecutor(
        1, multiprocessing.get_context("spawn"), max_tasks_per_child=1
    ) as pool:
        for policy in given.policies:
            before: tuple[int, int] | None = None
            for requests in given.requests:
                placed, seconds, kib = pool.submit(run, policy, requests, given.hosts).result()
                more = ""
                if before is not None:
                    more = f"{1024 * (kib - before[1]) / (requests - before[0]):.0f}"
                before = requests, kib
                print(
                    f"{policy:<16}{requests:>10,}{placed:>12,}{seconds:>9.0f}{kib / 1024:>7.0f}"
                    f"{more:>17}",
                    flush=True,
                )


def run(policy: str, requests: int, hosts: str) -> tuple[int, float, int]:
    """Return VMs placed, seconds of the processor, and the peak in KiB."""
    spec = RunSpec(
        name=policy,
        trace=TraceSpec(path=f"google:{requests}:{requests / _REQUESTS_A_DAY:.3f}d"),
        hosts=hosts,
        policy=policy,
        slot_length_s=300.0,
    )
    with tempfile.TemporaryDirectory() as folder:
        found = simulate(spec, Path(folder))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return found["vms"]["placed"], found["timing"]["processor_seconds"], peak


if __name__ == "__main__":
    main()
