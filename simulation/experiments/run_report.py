"""Report one run of a what-if as JSON values of bounded size."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from placement import FloatArray, IntArray, dominant_shares
from simulation.experiments.run import ObservedRun
from simulation.metrics.summary import waits_of

#: Points of a line, tenants, and kinds of what waits: more is not read.
MAX_POINTS: Final = 200
MAX_TENANTS: Final = 50
MAX_WAITING: Final = 20


def run_document(run: ObservedRun) -> dict[str, Any]:
    """Return the report of a what-if's run: figures, series over time, tenants, waiting VMs.

    Times are in seconds from the beginning; shares and uses are parts of the pool.
    """
    summary = run.summary
    waits_s = {name: summary["wait_s"][name] for name in ("mean", "p50", "p90", "max")}
    return {
        "policy": summary["policy"],
        "hosts": int(run.engine.cluster.present.sum()),
        "vms": dict(summary["vms"]),
        "placed_part": summary["placed_part"],
        "placed_by_size": summary["placed_by_size"],
        "waiting_by_size_s": summary["waiting_by_size_s"],
        "wait_s": waits_s | {"mean_so_far": _mean_wait(run)},
        "fair_distance": summary["fair_distance"],
        "used": {name: each["mean"] for name, each in summary["used"].items()},
        "rounds": summary["rounds"],
        "fallbacks": summary["fallbacks"],
        "seconds": summary["timing"]["seconds"],
        "tenants": _tenant_rows(run),
        "waiting": _waiting_at_end(run),
        "lines": _time_series(run),
    }


def _mean_wait(run: ObservedRun) -> float | None:
    """Return the mean wait of a run's VMs; VMs that still wait at the end count, too.

    The mean over placed VMs alone would favour a policy that places few VMs, and early.
    """
    waits_s, counts = waits_of(run.recorder)
    waited_s, waiting = _waits_at_end(run)
    vms = float(counts.sum() + waiting.sum())
    return float((waits_s * counts).sum() + waited_s.sum()) / vms if vms else None


def _waits_at_end(run: ObservedRun) -> tuple[FloatArray, IntArray]:
    """Return each tenant's VMs that wait at the end, (N,): their VM-seconds, and their number."""
    waiting, count = run.engine.waiting, len(run.engine.names.tenants)
    waited_s, vms = np.zeros(count), np.zeros(count, dtype=np.int64)
    np.add.at(vms, waiting.tenant, waiting.count)
    over_s = float(run.summary["to_s"] or 0.0)
    np.add.at(waited_s, waiting.tenant, waiting.count * np.maximum(over_s - waiting.since_s, 0.0))
    return waited_s, vms


def _tenant_rows(run: ObservedRun) -> list[dict[str, Any]]:
    """Return a row for each tenant of a run: VMs requested and placed, share, and mean wait."""
    names, recorder = run.engine.names, run.recorder
    pool = run.engine.cluster.pool_capacity().sum(axis=0)
    count = len(names.tenants)
    shares = dominant_shares(names.held[:count], pool) if count else np.zeros(0)
    waiting_s, waits = _waits_at_end(run)
    rows: list[dict[str, Any]] = []
    for place, name in enumerate(names.tenants.values):
        seen = place < len(recorder.tenants)
        requested, placed = recorder.tenants.rows[place, :2].tolist() if seen else (0, 0)
        waited = float(recorder.waited_s[place]) if seen else 0.0
        vms = placed + int(waits[place])
        rows.append(
            {
                "tenant": name,
                "asked": requested,
                "placed": placed,
                "waiting": int(waits[place]),
                "mean_wait_s": waited / placed if placed else None,
                "mean_wait_so_far_s": (waited + float(waiting_s[place])) / vms if vms else None,
                "share": float(shares[place]),
            }
        )
    rows.sort(key=lambda row: (-row["share"], -row["asked"], row["tenant"]))
    return rows[:MAX_TENANTS]


def _waiting_at_end(run: ObservedRun) -> list[dict[str, Any]]:
    """Return the VMs of a run that wait at its end by tenant and size, most VMs first."""
    waiting, names = run.engine.waiting, run.engine.names
    over_s = float(run.summary["to_s"])
    found: defaultdict[tuple[int, int], list[float]] = defaultdict(lambda: [0, 0.0])
    for tenant, kind, count, since_s in zip(
        waiting.tenant.tolist(),
        waiting.kind.tolist(),
        waiting.count.tolist(),
        waiting.since_s.tolist(),
        strict=True,
    ):
        each = found[tenant, kind]
        each[0] += count
        each[1] = max(each[1], over_s - since_s)
    rows: list[dict[str, Any]] = [
        {
            "tenant": names.tenants.values[tenant],
            "demand": {
                name: int(amount)
                for name, amount in zip(names.resources, names.demand[kind], strict=True)
                if amount
            },
            "vms": int(vms),
            "longest_wait_s": longest_s,
        }
        for (tenant, kind), (vms, longest_s) in found.items()
    ]
    rows.sort(key=lambda row: (-row["vms"], row["tenant"]))
    return rows[:MAX_WAITING]


def _time_series(run: ObservedRun) -> dict[str, Any]:
    """Return a run's series over time, as means of a bounded number of periods."""
    slots = run.recorder.slots
    parts = np.array_split(np.arange(len(slots)), min(len(slots), MAX_POINTS) or 1)

    def line(name: str) -> list[float | None]:
        """Return a column of the slots as means of the periods."""
        return _period_means(slots.column(name), parts)

    return {
        "at_s": line("start_s"),
        "running": line("vms_running"),
        "waiting": line("vms_waiting"),
        "fair_distance": line("fair_distance"),
        "used": {name: line(f"used:{name}") for name in run.recorder.resources},
    }


def _period_means(column: npt.NDArray[Any], parts: list[npt.NDArray[Any]]) -> list[float | None]:
    """Return the mean of a column's finite values in each period; None without any."""
    means = []
    for part in parts:
        known = column[part][np.isfinite(column[part])]
        means.append(round(float(known.mean()), 6) if len(known) else None)
    return means
