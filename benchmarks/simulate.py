"""Print how many events a second the simulator passes, beside a plain event loop.

    python -m benchmarks.simulate [--requests 5000] [--hosts 200] [--trace FILE --slot 300]

A workload of the shape of Google's, twice: as it is, and four times as long with four
times the requests, which shows whether time per event stays flat. An event is a VM
that arrives (by request), is placed, or ends. Seconds are of the processor.

plain loop  no slots, no tenants, no record: each VM takes the first host that fits as it
            arrives (numpy over all hosts) and leaves from a heap; what does not fit is gone
policies    `fuga simulate`, everything recorded, on slots of five minutes
"""

from __future__ import annotations

import argparse
import heapq
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from simulation import RunSpec, TraceSpec, simulate
from simulation.specs import open_inputs

POLICIES = ("first_fit", "best_fit_drfh", "fuga")


@dataclass(frozen=True, slots=True)
class Measured:
    events: int
    seconds: float
    placed: float  #: part of the VMs asked for

    @property
    def us_per_event(self) -> float:
        return 1e6 * self.seconds / max(self.events, 1)


def main(argv: Sequence[str] | None = None) -> None:
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("--requests", type=int, default=5000)
    arguments.add_argument("--hosts", default="google:200", help="as of `fuga simulate`")
    arguments.add_argument("--trace", help="a file instead of the workload, run once")
    arguments.add_argument("--slot", type=float, default=300.0)
    arguments.add_argument("--policies", default=",".join(POLICIES))
    given = arguments.parse_args(argv)
    if given.trace:
        traces = {Path(given.trace).name: given.trace}
    else:
        long = 4 * given.requests
        traces = {"1 day": f"google:{given.requests}:1d", "4 days": f"google:{long}:4d"}
    print(f"hosts {given.hosts}, slots of {given.slot:g} s; per trace: events/s, µs per event")
    print(f"{'':<16}" + "".join(f"{name:^34}" for name in traces))
    for name in ("plain loop", *given.policies.split(",")):
        cells = []
        for trace in traces.values():
            spec = RunSpec(
                name=name,
                trace=TraceSpec(path=trace),
                hosts=given.hosts,
                policy=name,
                slot_length_s=given.slot,
            )
            run = plain_loop(spec) if name == "plain loop" else simulated(spec)
            rate = run.events / run.seconds
            cells.append(f"{rate:>12,.0f}{run.us_per_event:>10.0f}{100 * run.placed:>8.1f} %  ")
        print(f"{name:<16}" + "".join(cells), flush=True)


def simulated(spec: RunSpec) -> Measured:
    with tempfile.TemporaryDirectory() as folder:
        summary = simulate(spec, Path(folder))
    timing = summary["timing"]
    return Measured(timing["events"], timing["processor_seconds"], summary["placed_part"])


def plain_loop(spec: RunSpec) -> Measured:
    inputs = open_inputs(spec)
    free = inputs.inventory.cluster(inputs.resources).capacity.copy()
    started = time.process_time()
    ends: list[tuple[float, int, int]] = []
    demands = []
    events = asked = placed = 0
    for chunk in inputs.trace.chunks():
        for row in range(len(chunk)):
            now, demand = float(chunk.arrival_s[row]), chunk.demand[row]
            while ends and ends[0][0] <= now:
                _, host, which = heapq.heappop(ends)
                free[host] += demands[which]
                events += 1
            demands.append(demand)
            events += 1
            for _ in range(int(chunk.count[row])):
                asked += 1
                fits = (free >= demand).all(axis=1)
                host = int(np.argmax(fits))
                if not fits[host]:
                    continue
                free[host] -= demand
                placed += 1
                events += 1
                heapq.heappush(ends, (now + float(chunk.lifetime_s[row]), host, len(demands) - 1))
    return Measured(events, time.process_time() - started, placed / max(asked, 1))


if __name__ == "__main__":
    main()
