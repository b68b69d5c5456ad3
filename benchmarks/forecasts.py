"""The accuracy of estimates of waiting times, on traces whose outcome is known.

    python -m benchmarks.forecasts [DIR] [--only sample,huawei] [--samples 40] [--policy fuga]

A simulation is stopped slot after slot, and for some of the requests that wait an estimate is made
from what had happened by then alone: lifetimes of VMs that had ended or ran, requests of the last
day. Then it goes on, and when each request had its place is compared with the estimate. DIR has
the folders of public traces, as of `benchmarks.real_traces`; without it there are the sample of
Azure's trace and workloads of the shape of Google's.

The last columns are those after each part was multiplied by the factor that would have been right
on the other traces (conformal, one trace left out): what `AS_CALIBRATED` is made from.
"""

from __future__ import annotations

import dataclasses
import math
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.kit import parser
from benchmarks.real_traces import TRACES, tasks_since
from placement import FloatArray, IntArray
from placement.catalog.zone_policies import RoundPolicies
from placement.forecast.current_state import CurrentState, RecentArrivals, RunningVms
from placement.forecast.estimate import QUANTILES, quantile
from placement.forecast.lifetimes import Lifetimes, ObservedLifetimes
from placement.forecast.run_ahead import RunAheadOptions, simulate_waits
from simulation.experiments.specs import RunSpec, TraceSpec, open_inputs
from simulation.slots.cluster import Cluster
from simulation.slots.engine import Engine, SlotResult
from simulation.slots.interning import InternedNames
from simulation.slots.running_vms import VmRows
from simulation.slots.slot_decider import SimulatedPolicy
from simulation.slots.waiting_rows import WaitingRows
from simulation.traces.chunks import Arrivals

EXAMPLES: Final = Path(__file__).parents[1] / "docs/examples/traces"
HORIZON_S: Final = 43_200.0
_LATELY_S: Final = 86_400.0
_MAX_RECENT_ARRIVALS: Final = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedEstimate:
    """One estimate and its outcome."""

    at_s: float
    request: int
    quantiles: tuple[float, ...]  #: as of `QUANTILES`, seconds; inf: beyond the horizon
    took_s: float = math.nan  #: inf: it waited longer than the horizon


@dataclass(slots=True)
class ObservedSlots:
    """Observations of VMs and requests from an engine's slots so far."""

    placed: list[VmRows] = field(default_factory=list)
    began_s: list[FloatArray] = field(default_factory=list)
    arrived: list[WaitingRows] = field(default_factory=list)
    left: dict[int, int] = field(default_factory=dict)  #: VMs that wait, of each request
    done_s: dict[int, float] = field(default_factory=dict)

    def note(self, passed: SlotResult) -> None:
        """Record the observations of a slot."""
        for waiting in passed.arrived:
            self.arrived.append(waiting)
            for request, count in zip(
                waiting.request.tolist(), waiting.count.tolist(), strict=True
            ):
                self.left[request] = self.left.get(request, 0) + count
        for vms in passed.lost:
            for request, count in zip(vms.request.tolist(), vms.count.tolist(), strict=True):
                self.left[request] = self.left.get(request, 0) + count
                self.done_s.pop(request, None)
        if passed.round is not None:
            vms = passed.round.placed
            self.placed.append(vms)
            self.began_s.append(np.full(len(vms), passed.start_s))
            for request, count in zip(vms.request.tolist(), vms.count.tolist(), strict=True):
                self.left[request] -= count
                if self.left[request] <= 0:
                    self.done_s[request] = passed.start_s

    def present(self, engine: Engine, now_s: float) -> tuple[CurrentState, Lifetimes, IntArray]:
        """Return the state and lifetimes known at a time, and the waiting requests."""
        names, waiting = engine.names, engine.waiting
        came = WaitingRows.concatenate(self.arrived)
        came = came.where(np.flatnonzero(came.since_s > now_s - _LATELY_S)[-_MAX_RECENT_ARRIVALS:])
        _, first, of_came = np.unique(
            np.column_stack([came.tenant, came.kind, came.constraints]),
            axis=0,
            return_index=True,
            return_inverse=True,
        )
        ghosts = dataclasses.replace(
            came.where(first),
            request=2**60 + np.arange(len(first)),
            count=np.ones(len(first), dtype=np.int64),
            min_count=np.ones(len(first), dtype=np.int64),
            age=np.zeros(len(first), dtype=np.int64),
        )
        engine.waiting = waiting.with_more(ghosts)
        snapshot, tenants = engine.snapshot()
        both, engine.waiting = engine.waiting, waiting
        count = snapshot.count.copy()
        count[len(waiting) :] = 0
        place = np.zeros(len(names.tenants), dtype=np.int64)
        place[tenants] = np.arange(len(tenants))
        running, began = self._running(now_s)
        since = came.since_s[0] if len(came) else now_s
        present = CurrentState(
            snapshot=dataclasses.replace(snapshot, count=count),
            groups=_groups(both.tenant, both.kind),
            ends_in_s=np.full(len(count), np.inf),
            running=RunningVms(
                host=np.array(
                    [
                        place
                        for host in running.host.tolist()
                        for place in engine.cluster.positions_in_pool([host])
                    ],
                    dtype=np.int64,
                ),
                tenant=place[running.tenant],
                request=running.request,
                count=running.count,
                demand=names.demand[running.kind],
                groups=_groups(running.tenant, running.kind),
                age_s=now_s - began,
                ends_in_s=np.full(len(began), np.inf),
            ),
            arrivals=RecentArrivals(
                at_s=came.since_s - since,
                row=len(waiting) + of_came.ravel(),
                count=came.wanted,
                span_s=float(now_s - since),
            ),
        )
        return present, self.lifetimes(now_s), waiting.request

    def _running(self, now_s: float) -> tuple[VmRows, FloatArray]:
        vms, began = VmRows.concatenate(self.placed), np.concatenate(self.began_s)
        runs = vms.end_s > now_s
        return vms.where(runs), began[runs]

    def lifetimes(self, now_s: float) -> Lifetimes:
        """Return lifetimes as they are known by a time: VMs of one request with one end once."""
        vms, began = VmRows.concatenate(self.placed), np.concatenate(self.began_s)
        ended = vms.end_s <= now_s
        age_s = np.minimum(vms.end_s, now_s) - began
        _, first = np.unique(
            np.column_stack([vms.request, began, age_s]), axis=0, return_index=True
        )
        return Lifetimes(
            ObservedLifetimes(
                groups=_groups(vms.tenant, vms.kind)[first], age_s=age_s[first], ended=ended[first]
            )
        )


def _groups(tenant: IntArray, kind: IntArray) -> IntArray:
    return np.column_stack([tenant * 2**31 + kind, kind, tenant])


def judge_estimates(
    engine: Engine,
    arrivals: Arrivals,
    *,
    every_s: float,
    samples: int,
    of_each: int = 20,
    until_s: float = math.inf,
    horizon_s: float = HORIZON_S,
) -> Iterator[JudgedEstimate]:
    """Run an engine, estimate waits between its slots, and yield the estimates with outcomes."""
    watched, estimates = ObservedSlots(), list[JudgedEstimate]()
    chosen_before: set[int] = set()
    choice, rng = engine.choice, np.random.default_rng(1)
    length_s = choice.slot_length_s
    first = arrivals.next_s()
    slot = math.ceil((first or 0.0) / length_s)
    next_s = slot * length_s + every_s
    while arrivals.next_s() is not None and slot * length_s < (first or 0.0) + until_s:
        now_s = slot * length_s
        watched.note(engine.advance_to(slot, arrivals.take_until(now_s)))
        slot += 1
        fresh = [each for each in engine.waiting.request.tolist() if each not in chosen_before]
        if now_s < next_s or not fresh or not watched.placed:
            continue
        next_s = now_s + every_s
        present, lifetimes, requests = watched.present(engine, now_s)
        if not lifetimes.is_known:
            continue
        waits = simulate_waits(present, lifetimes, _ahead(choice, samples, slot, horizon_s))
        chosen = set(rng.permutation(np.unique(fresh))[:of_each].tolist())
        chosen_before |= chosen
        for request in sorted(chosen):
            rows = np.flatnonzero(requests == request)
            each = waits[:, rows].max(axis=1)
            parts = tuple(quantile(each, part) for part in QUANTILES)
            estimates.append(JudgedEstimate(at_s=now_s, request=request, quantiles=parts))
    end_s = (slot - 1) * length_s
    for each in estimates:
        if each.at_s + horizon_s > end_s:
            continue  # what became of it is known of those alone that did not wait long
        took_s = watched.done_s.get(each.request, math.inf) - each.at_s
        yield dataclasses.replace(each, took_s=took_s if took_s <= horizon_s else math.inf)


def _ahead(choice: SimulatedPolicy, samples: int, seed: int, horizon_s: float) -> RunAheadOptions:
    who = RoundPolicies(policy=choice.policy, parameters=choice.parameters)
    policy = who.make_policy()
    return RunAheadOptions(
        policy=lambda _: policy,
        slot_length_s=choice.slot_length_s,
        budget_units=choice.budget_units,
        samples=samples,
        seed=seed,
        horizon_s=horizon_s,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimateAccuracy:
    """Shares of estimates that held."""

    judged: int
    within: float  #: part of the 90 % intervals that held
    parts: tuple[float, ...]  #: of outcomes at or below each of `QUANTILES`
    open_ended: float  #: part of intervals without an upper end
    width: float  #: upper by lower end, the median of those that have both


def judged(
    estimates: Sequence[JudgedEstimate], factors: Sequence[float] = (1.0,) * len(QUANTILES)
) -> EstimateAccuracy | None:
    """Return the accuracy of estimates, each quantile times its factor; None if there are none."""
    if not estimates:
        return None
    low, high = QUANTILES.index(0.05), QUANTILES.index(0.95)
    bounds = np.array([each.quantiles for each in estimates]) * factors
    took = np.array([each.took_s for each in estimates])
    below = took[:, None] <= bounds
    below[np.isinf(bounds)] = True
    within = (took >= bounds[:, low]) & below[:, high]
    ended = np.isfinite(bounds[:, high])
    width = np.median(bounds[ended, high] / bounds[ended, low]) if ended.any() else math.inf
    return EstimateAccuracy(
        judged=len(estimates),
        within=float(within.mean()),
        parts=tuple(below.mean(axis=0).tolist()),
        open_ended=float(1 - ended.mean()),
        width=float(width),
    )


def calibration_factors(estimates: Sequence[JudgedEstimate]) -> tuple[float, ...]:
    """Return by what each quantile must be multiplied to hold as often as it says.

    Split conformal prediction (Papadopoulos and others, ECML 2002) of outcome by quantile:
    of upper parts the least factor at which enough outcomes lie below, of lower ones the most
    at which few enough do.
    """
    factors = []
    for place, part in enumerate(QUANTILES):
        upper = part >= 0.5
        ratios = [
            each.took_s / each.quantiles[place]
            if math.isfinite(each.quantiles[place])
            # Beyond the horizon: its estimate holds for whatever comes, or comes later.
            else float(not upper and math.isinf(each.took_s))
            for each in estimates
        ]
        factor = quantile(np.array(ratios), part) if ratios else 1.0
        factors.append(max(1.0, factor) if upper else min(1.0, factor))
    return tuple(factors)


def studies(data: Path | None, folder: Path) -> Mapping[str, tuple[RunSpec, float]]:
    """Return runs by name, with the seconds between the estimates of each."""
    found: dict[str, tuple[RunSpec, float]] = {
        "sample": (
            RunSpec(
                name="sample",
                trace=TraceSpec(path=str(EXAMPLES / "azure_2017_sample.csv.gz"), tenants=20),
                hosts=str(EXAMPLES / "google_2011_machines_sample.csv"),
                slot_length_s=300.0,
            ),
            3600.0,
        ),
        "google": (
            RunSpec(
                name="google",
                trace=TraceSpec(path="google:12000:2d:50t"),
                hosts="google:35",
                slot_length_s=60.0,
            ),
            3600.0,
        ),
    }
    for name, trace in TRACES.items():
        if data is None or not (data / trace.path).is_file():
            continue
        path = data / trace.path
        if trace.since_s:
            path = tasks_since(trace.since_s, path, folder / f"{name}.csv")
        spec = RunSpec(
            name=name,
            trace=TraceSpec(path=str(path)),
            hosts=",".join(trace.hosts),
            slot_length_s=trace.slot_length_s,
        )
        found[name] = (spec, 6 * 3600.0)
    return found


def run(spec: RunSpec, every_s: float, samples: int, until_s: float) -> list[JudgedEstimate]:
    """Return all estimates of a run with their outcomes."""
    inputs = open_inputs(spec)
    engine = Engine(
        Cluster.of(inputs.inventory, inputs.resources),
        InternedNames(inputs.resources, inputs.weights, inputs.hierarchies[0][1]),
        spec,
        inputs.inventory.events,
        inputs.hierarchies[1:],
    )
    arrivals = Arrivals(inputs.trace)
    return list(
        judge_estimates(engine, arrivals, every_s=every_s, samples=samples, until_s=until_s)
    )


_HEAD: Final = (
    f"{'trace':<10}{'judged':>8}{'90 % held':>11}{'<= half':>9}{'<= 9 of 10':>12}"
    f"{'open':>7}{'width':>8}"
)


def _line(name: str, held: EstimateAccuracy | None) -> str:
    if held is None:
        return f"{name:<10}{0:>8}"
    half, nine = (held.parts[QUANTILES.index(part)] for part in (0.5, 0.9))
    return (
        f"{name:<10}{held.judged:>8,}{held.within:>11.1%}{half:>9.1%}{nine:>12.1%}"
        f"{held.open_ended:>7.1%}{held.width:>8.1f}"
    )


def main(argv: Sequence[str] | None = None) -> None:
    arguments = parser(__doc__, only=[], policy="fuga", samples=40, until_days=math.inf)
    arguments.add_argument("data", type=Path, metavar="DIR", nargs="?")
    given = arguments.parse_args(argv)
    estimates: dict[str, list[JudgedEstimate]] = {}
    with tempfile.TemporaryDirectory() as folder:
        chosen = studies(given.data, Path(folder))
        for name in given.only or chosen:
            spec, every_s = chosen[name]
            spec = dataclasses.replace(spec, policy=given.policy)
            began = time.process_time()
            estimates[name] = run(spec, every_s, given.samples, given.until_days * 86_400)
            print(
                f"{name}: {len(estimates[name])} estimates, {time.process_time() - began:.0f} s",
                file=sys.stderr,
            )
    print(_HEAD)
    for name, its in estimates.items():
        print(_line(name, judged(its)), flush=True)
    print("\neach corrected by the others")
    for name, its in estimates.items():
        others = [each for other, theirs in estimates.items() if other != name for each in theirs]
        print(_line(name, judged(its, calibration_factors(others))), flush=True)
    every = [each for its in estimates.values() for each in its]
    factors = zip(QUANTILES, calibration_factors(every), strict=True)
    print("\nfactors of all:", ", ".join(f"{part:g}: {factor:.2f}" for part, factor in factors))


if __name__ == "__main__":
    main()
