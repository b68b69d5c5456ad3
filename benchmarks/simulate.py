"""Print how many events a second the simulator processes, against a plain event loop.

    python -m benchmarks.simulate [--shape azure] [--requests 5000] [--hosts 200]
    python -m benchmarks.simulate --trace FILE --slot 300

A workload of the shape of Google's, or one drawn from the sample of Azure's trace in
docs/examples, twice: as it is, and four times as long with four times the requests,
which shows whether time per event stays flat. An event is a VM that arrives (by
request), is placed, or ends. Seconds are of the processor.

plain loop  no slots, no tenants, no record: each VM takes the first host that fits as it
            arrives (numpy over all hosts) and leaves from a heap; what does not fit is gone
policies    `fuga simulate`, everything recorded, on slots of five minutes; the last column
            is the part of its time in which the policy decides
"""

from __future__ import annotations

import argparse
import heapq
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import numpy as np

from benchmarks.drawn_trace import write_drawn
from benchmarks.kit import parser
from placement import Allocation, IntArray, decide
from simulation import RunSpec, TraceSpec, simulate
from simulation.experiments.specs import open_inputs
from simulation.slots import slot_decider
from simulation.slots.cluster import Cluster

POLICIES = ("first_fit", "best_fit_drfh", "fuga")


@dataclass(frozen=True, slots=True)
class SimulationFigures:
    events: int
    seconds: float
    placed: float  #: part of the VMs requested
    deciding_s: float | None = None  #: inside the policy

    def row(self, name: str, trace: str, plain: SimulationFigures) -> str:
        each_us = 1e6 * self.seconds / max(self.events, 1)
        relative = self.seconds / self.events * plain.events / plain.seconds
        policy = "" if self.deciding_s is None else f"{100 * self.deciding_s / self.seconds:.0f} %"
        return (
            f"{name:<15}{trace:<12}{self.events:>11,}{self.seconds:>9.1f}"
            f"{self.events / self.seconds:>11,.0f}{each_us:>10.0f}{relative:>9.1f}"
            f"{100 * self.placed:>8.1f} %{policy:>8}"
        )


def main(argv: Sequence[str] | None = None) -> None:
    arguments = parser(
        __doc__,
        requests=(5000, "in the days; of azure, VMs"),
        days=1.0,
        hosts=("google:200", "as of `fuga simulate`"),
        trace=(None, "a file instead of the workload, run once"),
        slot=300.0,
        policies=[*POLICIES],
    )
    arguments.add_argument("--shape", choices=("google", "azure"), default="google")
    given = arguments.parse_args(argv)
    print(
        f"hosts {given.hosts}, slots of {given.slot:g} s; × loop: time per event, the loop's is 1"
    )
    print(
        f"{'':<15}{'trace':<12}{'events':>11}{'seconds':>9}{'events/s':>11}{'µs each':>10}"
        f"{'× loop':>9}{'placed':>10}{'policy':>8}"
    )
    warm = TraceSpec(path="google:50:1d")
    for policy in given.policies:  # what is compiled or imported once is not of a trace
        simulated(RunSpec(name=policy, trace=warm, hosts="google:20", policy=policy))
    with tempfile.TemporaryDirectory() as folder:
        traces = traces_of(given, Path(folder))
        plain: dict[str, SimulationFigures] = {}
        for name in ("plain loop", *given.policies):
            for trace, path in traces.items():
                spec = RunSpec(
                    name=name,
                    trace=TraceSpec(path=path),
                    hosts=given.hosts,
                    policy=name,
                    slot_length_s=given.slot,
                )
                run = simulated(spec) if trace in plain else plain_loop(spec)
                print(run.row(name, trace, plain.setdefault(trace, run)), flush=True)


def traces_of(given: argparse.Namespace, folder: Path) -> dict[str, str]:
    """Return the requested traces: name and path of each."""
    if given.trace:
        return {Path(given.trace).name[:11]: given.trace}
    traces = {}
    for times in (1, 4):
        days, requests = times * given.days, times * given.requests
        path = f"google:{requests}:{days:g}d"
        if given.shape == "azure":
            path = str(folder / f"{times}.csv")
            write_drawn(Path(path), requests, days)
        traces[f"{days:g} days"] = path
    return traces


def simulated(spec: RunSpec) -> SimulationFigures:
    with tempfile.TemporaryDirectory() as folder, clocked() as deciding:
        timing = (summary := simulate(spec, Path(folder)))["timing"]
    return SimulationFigures(
        timing["events"], timing["processor_seconds"], summary["placed_part"], sum(deciding)
    )


@contextmanager
def clocked() -> Iterator[list[float]]:
    """Record the processor time in seconds of each decision of a simulation."""
    seconds: list[float] = []

    def deciding(*arguments: object, **named: object) -> Allocation:
        started = time.process_time()
        try:
            return decide(*arguments, **named)  # type: ignore[arg-type]
        finally:
            seconds.append(time.process_time() - started)

    with patch.object(slot_decider, "decide", deciding):
        yield seconds


def plain_loop(spec: RunSpec) -> SimulationFigures:
    inputs = open_inputs(spec)
    free = Cluster.of(inputs.inventory, inputs.resources).capacity.copy()
    started = time.process_time()
    ends: list[tuple[float, int, int]] = []
    demands: list[IntArray] = []
    events = requested = placed = 0
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
                requested += 1
                fits = (free >= demand).all(axis=1)
                host = int(np.argmax(fits))
                if not fits[host]:
                    continue
                free[host] -= demand
                placed += 1
                events += 1
                heapq.heappush(ends, (now + float(chunk.lifetime_s[row]), host, len(demands) - 1))
    return SimulationFigures(events, time.process_time() - started, placed / max(requested, 1))


if __name__ == "__main__":
    main()
