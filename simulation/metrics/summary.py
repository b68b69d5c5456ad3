"""The summary of a simulation, which tables, reports and comparisons read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np

from placement import FloatArray, IntArray
from simulation.metrics.recorder import SeriesRecorder
from simulation.slots.engine import Engine


def build_summary(recorder: SeriesRecorder, engine: Engine) -> dict[str, Any]:
    """Return the summary of a simulation in JSON values. A value that is not known is null.

    Times are in seconds; parts are within [0, 1]. Waits are of VMs that were
    placed, from arrival to the start of their slot; completions from arrival to end.
    Measures by size weigh each VM by its dominant share of all hosts. ``waiting_by_size_s``
    counts the waits of VMs that were not placed, too, up to the last slot or until their
    tenant gave up.
    """
    slots = recorder.slots
    tenants = recorder.tenants.rows.sum(axis=0)
    sizes = vm_sizes(engine)
    by_size = sizes @ recorder.kinds.rows
    requested, placed, completed, lost, given_up = (int(each) for each in tenants)
    waits, counts = waits_of(recorder)
    over = float(slots.column("start_s")[-1]) if len(slots) else 0.0
    took, ended = completions_of(recorder, over)
    return {
        "slots": len(slots),
        "rounds": int(slots.column("round").sum()),
        "from_s": float(slots.column("start_s")[0]) if len(slots) else None,
        "to_s": over,
        "hosts": len(engine.cluster.all_hosts()),
        "tenants": len(recorder.tenants),
        "requests": int(np.nansum(slots.column("requests_arrived"))),
        "vms": {
            "asked": requested,
            "placed": placed,
            "completed": completed,
            "running": int(engine.names.vms.sum()),
            "waiting": int(engine.waiting.count.sum()),
            "lost": lost,
            "given_up": given_up,
            "at_the_beginning": recorder.stood,
        },
        "placed_part": _ratio(placed - lost, requested),
        "placed_by_size": _ratio(by_size[1] - by_size[2], by_size[0]),
        "whole_host_vms": _whole_host_vms(recorder, engine),
        "waiting_by_size_s": _ratio(
            float(sizes @ recorder.waited_s_of_kind(engine, over)), by_size[0]
        ),
        "completed_part": _ratio(completed, requested),
        "completed_part_of_tenants": _mean_of_known(
            completed_fractions(recorder.tenants.rows[:, 0], recorder.tenants.rows[:, 2])
        ),
        "wait_s": describe_distribution(waits, counts),
        "completion_s": describe_distribution(took, ended),
        "used": {
            name: _use_distribution(slots.column(f"used:{name}")) for name in recorder.resources
        },
        "fragmentation": _mean_of_known(slots.column("fragmentation")),
        "fair_distance": _mean_of_known(slots.column("fair_distance")),
        "bound_part": _ratio(
            float(np.nansum(slots.column("placed_part"))),
            float(np.nansum(slots.column("bound_part"))),
        ),
        "left_out": dict(sorted(recorder.reasons.items())),
        "fallbacks": len(recorder.fallbacks),
        "fallback_reasons": [
            {"slot": slot, "reason": reason} for slot, reason in recorder.fallbacks[:20]
        ],
        "slots_skipped": int(slots.column("skipped").sum()),
        "rounds_cut": int(np.nansum(slots.column("cut"))),
        "moves": None if recorder.moving is None else recorder.moving.summary(slots, engine),
    }


def vm_sizes(engine: Engine) -> FloatArray:
    """Return the dominant share of one VM of each kind, (K,), of all hosts together."""
    pool = np.maximum(engine.cluster.capacity.sum(axis=0), 1)
    sizes: FloatArray = (engine.names.demand / pool).max(axis=1, initial=0.0)
    return sizes


def _whole_host_vms(recorder: SeriesRecorder, engine: Engine) -> Mapping[str, int]:
    """Return the VMs requested, and placed, as large as the largest host in any resource."""
    capacity = engine.cluster.capacity
    largest = capacity.max(axis=0, initial=0)
    demand = engine.names.demand
    whole = ((demand >= largest) & (largest > 0)).any(axis=1)
    requested, placed, lost = recorder.kinds.rows[whole].sum(axis=0).tolist()
    return {"requested": requested, "placed": placed - lost}


def waits_of(recorder: SeriesRecorder) -> tuple[FloatArray, FloatArray]:
    """Return the sorted waits of placed VMs, and the number of VMs of each."""
    placements = recorder.placements
    waits = placements.column("start_s") - placements.column("arrival_s")
    return _count_distinct(waits, placements.column("count"))


def completions_of(recorder: SeriesRecorder, over_s: float) -> tuple[FloatArray, FloatArray]:
    """Return the sorted times from arrival to end of VMs, and the number of VMs of each."""
    placements = recorder.placements
    ends = placements.column("end_s")
    done = ends <= over_s
    took = ends[done] - placements.column("arrival_s")[done]
    return _count_distinct(took, placements.column("count")[done])


def completed_fractions(requested: IntArray, completed: IntArray) -> FloatArray:
    """Return the completed fraction of each tenant's VMs, (N,); NaN without requests."""
    parts: FloatArray = np.full(len(requested), np.nan)
    np.divide(completed, requested, out=parts, where=requested > 0)
    return parts


def describe_distribution(values: FloatArray, counts: FloatArray) -> Mapping[str, float | None]:
    """Return mean, percentiles and maximum of sorted values, weighted by counts."""
    if not len(values):
        return dict.fromkeys(("mean", "p50", "p90", "p95", "p99", "max"))
    reached = np.cumsum(counts)
    percentiles = {
        f"p{percent}": float(values[np.searchsorted(reached, percent / 100 * reached[-1])])
        for percent in (50, 90, 95, 99)
    }
    mean = float((values * counts).sum() / reached[-1])
    return {"mean": mean, **percentiles, "max": float(values[-1])}


def _count_distinct(values: FloatArray, counts: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return distinct values and the count of each."""
    distinct, place = np.unique(values, return_inverse=True)
    times: FloatArray = np.bincount(place.ravel(), counts, len(distinct)).astype(np.float64)
    return distinct, times


def _use_distribution(parts: FloatArray) -> Mapping[str, float | None]:
    known = parts[np.isfinite(parts)]
    if not len(known):
        return dict.fromkeys(("mean", "p95", "max"))
    return {
        "mean": float(known.mean()),
        "p95": float(np.quantile(known, 0.95)),
        "max": float(known.max()),
    }


def _mean_of_known(values: FloatArray) -> float | None:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else None


def _ratio(part: float, whole: float) -> float | None:
    return float(part / whole) if whole > 0 else None


#: What policies are compared by: path in a summary, heading, unit, and whether more is better.
MEASURES: Final[tuple[tuple[str, str, str, bool], ...]] = (
    ("placed_part", "VMs placed", "% of those requested", True),
    ("placed_by_size", "placed by size", "% of the shares requested", True),
    ("waiting_by_size_s", "waiting by size, unplaced too", "s per share requested", False),
    ("wait_s.mean", "mean wait of VMs placed", "s", False),
    ("wait_s.p95", "95th percentile of these waits", "s", False),
    ("completed_part", "VMs completed", "% of those requested", True),
    ("completed_part_of_tenants", "completed per tenant", "%, mean of tenants", True),
    ("used.first.mean", "first resource in use", "% of the pool", True),
    ("fair_distance", "distance from fair shares", "% of the mean fair share", False),
    ("bound_part", "placed of what rounds could have (LP bound)", "%", True),
    ("fragmentation", "free but too little for a VM", "% of what is free", False),
)

#: The same of runs that say something of moves.
MEASURES_OF_MOVES: Final[tuple[tuple[str, str, str, bool], ...]] = (
    ("moves.moved", "moves", "VMs", False),
    ("moves.moved_gib", "moved", "GiB", False),
    ("moves.load_deviation", "load of hosts", "% off the mean, CPU and memory added", False),
    ("moves.mean_skewness", "mean skewness of hosts in use", "", False),
    ("moves.potential", "potential", "", True),
    ("moves.fairness_distance", "distance from fair shares, all slots", "% of the mean", False),
    ("moves.hosts_in_use", "hosts in use", "hosts", False),
    ("moves.held_idle_part", "free, but held for starving requests", "% of the pool", False),
    ("moves.spare.domains_held_part", "domains whose spare held", "%", True),
    ("moves.spare.vm_rounds_waited", "waits for spare", "VMs × rounds", False),
    ("moves.roll.took_s", "the roll took", "s", False),
)


def measures_of(summaries: Iterable[Mapping[str, Any]]) -> list[tuple[str, str, str, bool]]:
    """Return the measures that compare some runs; measures of moves only if a run has moves."""
    listed = list(summaries)
    said = [
        each
        for each in MEASURES_OF_MOVES
        if any(measure_at(summary, each[0]) is not None for summary in listed)
    ]
    return [*MEASURES, *said]


def measure_at(summary: Mapping[str, Any], path: str) -> float | None:
    """Return one measure of a summary; ``first`` means its first resource."""
    found: Any = summary
    for part in path.split("."):
        if part == "first":
            part = next(iter(found or ()), "")  # noqa: PLW2901 - resources are in order
        found = found.get(part) if isinstance(found, Mapping) else None
    return None if found is None else float(found)
