"""DRFH, Fig. 7 to 9: what completes under Best-Fit, under Slots and in dedicated clouds."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Final

import numpy as np

from placement import FloatArray
from simulation.report.plot_series import cumulative_fractions, downsample_series
from simulation.report.plots import Plot
from simulation.reproduction.drfh_day import (
    BEST,
    SLOTS,
    WHY,
    WITHIN,
    build_day,
    drfh_item,
    simulated_day,
    to_simulated_policy,
)
from simulation.reproduction.model import ItemOutcome, Number, Setup, Statement, Table
from simulation.reproduction.plots import line_plotter
from simulation.reproduction.trace_replay import ListedTrace, play_trace
from simulation.reproduction.workloads import RESOURCES
from simulation.traces.chunks import Chunk

#: Sizes of jobs, as the paper groups them, as far as the generator's jobs go.
_SIZES: Final = ((1, 50), (51, 100), (101, 500))
#: A job that completes sooner by no more than this part of its time gains nothing, and by less than
#: the other one, nothing significant.
_NO_GAIN: Final = 0.05
_SIGNIFICANT_GAIN: Final = 0.1


def _reproduce_fig7(setup: Setup) -> ItemOutcome:
    """Reproduce Fig. 7 of DRFH: completion times of jobs under Best-Fit DRFH and Slots."""
    played = simulated_day(setup)
    drfh, slots = played[BEST], played[SLOTS]
    both = np.isfinite(drfh.took_s) & np.isfinite(slots.took_s)
    rows: list[tuple[str, int, float, float, float]] = []
    for minimum, maximum in _SIZES:
        jobs = both & (drfh.requested >= minimum) & (drfh.requested <= maximum)
        if jobs.any():
            ours, theirs = (float(each.took_s[jobs].mean()) for each in (drfh, slots))
            rows.append((f"{minimum}-{maximum}", int(jobs.sum()), ours, theirs, 1 - ours / theirs))
    overall = 1 - float(drfh.took_s[both].mean()) / float(slots.took_s[both].mean())
    done = {policy: int(np.isfinite(each.took_s).sum()) for policy, each in played.items()}
    curves = {}
    for policy in (BEST, SLOTS):
        took = np.sort(played[policy].took_s[both]) / 60
        minutes, part = cumulative_fractions(took, np.ones(len(took)))
        curves[policy] = downsample_series(minutes, 100 * part)
    return ItemOutcome(
        statements=(
            Statement(
                says="jobs complete sooner under Best-Fit DRFH than under Slots",
                found=f"{100 * overall:.0f} % sooner in the mean over {int(both.sum()):,} jobs "
                f"that complete under both; {done[BEST]:,} complete under DRFH, "
                f"{done[SLOTS]:,} under Slots",
                holds=overall > 0 and done[BEST] >= done[SLOTS],
            ),
            *judge_gains_by_size({size: gain for size, *_, gain in rows}),
        ),
        tables=(
            Table(
                name="by_size",
                columns=("tasks", "jobs", "best_fit_drfh_s", "slots_s", "reduction"),
                rows=rows,
            ),
        ),
        draw=line_plotter(
            "Completion times of jobs that complete under both policies",
            "A line further left and higher is better.",
            {"jobs completed within (%)": curves},
            over="time from arrival to the end of the last task (minutes)",
        ),
        why=f"{WHY} More is requested than there is room, so jobs of every size wait under Slots, "
        "and small ones gain, too.",
    )


def judge_gains_by_size(gains: Mapping[str, float]) -> tuple[Statement, Statement]:
    """Judge the paper's statement that only jobs of more than 50 tasks gain, large ones more.

    Parameters
    ----------
    gains : mapping of str to float
        Part of their time by which jobs complete sooner, by their number of tasks as in
        ``"51-100"``, in ascending order.
    """
    smallest = f"{_SIZES[0][0]}-{_SIZES[0][1]}"
    small = gains.get(smallest)
    rows = list(gains.values())
    large = [gain for size, gain in gains.items() if size != smallest]
    return (
        Statement(
            says=f"jobs of at most {_SIZES[0][1]} tasks complete no sooner",
            found="no such job completes" if small is None else f"{100 * small:.0f} % sooner",
            holds=small is not None and abs(small) <= _NO_GAIN,
        ),
        Statement(
            says=f"jobs of more than {_SIZES[0][1]} tasks complete significantly sooner, and more "
            "so with more tasks",
            found=", ".join(f"{100 * gain:.0f} % for {size} tasks" for size, gain in gains.items()),
            holds=bool(large)
            and min(large) >= _SIGNIFICANT_GAIN
            and all(after > before for before, after in pairwise(rows)),
        ),
    )


def _reproduce_fig8(setup: Setup) -> ItemOutcome:
    """Reproduce Fig. 8 of DRFH: completed parts of users' tasks under Best-Fit DRFH and Slots."""
    played, tenants = simulated_day(setup), build_day(setup).tenants
    drfh, slots = (played[policy].completed_fractions_of(tenants) for policy in (BEST, SLOTS))
    no_less = float((drfh >= slots).mean())
    return ItemOutcome(
        numbers=(
            Number(
                what="users who complete all of their tasks under Best-Fit DRFH and not under "
                "Slots",
                paper=20.0,
                ours=100 * fraction_completed_only_there(drfh, slots),
                unit="% of users",
                within=WITHIN,
            ),
        ),
        statements=(
            Statement(
                says="nearly all users complete as large a part of their tasks as under Slots, "
                "or a larger one",
                found=f"{100 * no_less:.0f} % of {len(tenants)} users; in the mean they complete "
                f"{100 * float(drfh.mean()):.0f} % under DRFH and "
                f"{100 * float(slots.mean()):.0f} % under Slots",
                holds=no_less >= 0.9,
            ),
        ),
        tables=(_ratio_table(tenants, {BEST: drfh, SLOTS: slots}),),
        draw=_draw_sorted_ratios({BEST: drfh, SLOTS: slots}, "under DRFH and under Slots"),
        why=f"{WHY} Lives have a heavy tail, beyond the end of the day: "
        f"{100 * float((drfh >= 1).mean()):.0f} % of users complete all of their tasks under "
        f"Best-Fit DRFH, {100 * float((slots >= 1).mean()):.0f} % under Slots.",
    )


def fraction_completed_only_there(there: FloatArray, elsewhere: FloatArray) -> float:
    """Return the fraction of users that complete all tasks in one setting and not in the other."""
    return float(((there >= 1) & (elsewhere < 1)).mean())


def _reproduce_fig9(setup: Setup) -> ItemOutcome:
    """Reproduce Fig. 9 of DRFH: completed parts of tasks, shared against dedicated clouds."""
    day = build_day(setup)
    shared = simulated_day(setup)[BEST].completed_fractions_of(day.tenants)
    order = np.random.default_rng([setup.seed, 9]).permutation(len(day.hosts))
    alone = np.zeros(len(day.tenants))
    for number, tenant in enumerate(day.tenants):
        own = day.hosts[order[number :: len(day.tenants)]]
        choice = to_simulated_policy(BEST, day.slot_s, setup.seed)
        trace = ListedTrace(resources=RESOURCES, parts=_requests_of_tenant(day.trace, tenant))
        alone[number] = play_trace(trace, own, choice, slots=day.slots).completed_fractions_of(
            [tenant]
        )[0]
        setup.report((number + 1) / len(day.tenants))
    losing = float((shared < alone - 1e-9).mean())
    gain = float((shared - alone).mean())
    return ItemOutcome(
        numbers=(
            Number(
                what="users who complete less in the shared cloud than on as many servers alone",
                paper=2.0,
                ours=100 * losing,
                unit="% of users",
                within=5.0,
            ),
        ),
        statements=(
            Statement(
                says="users gain by sharing, in the mean",
                found=f"they complete {100 * gain:+.1f} points of their tasks more",
                holds=gain > 0,
            ),
        ),
        tables=(_ratio_table(day.tenants, {"shared": shared, "dedicated": alone}),),
        draw=_draw_sorted_ratios(
            {"shared": shared, "dedicated": alone},
            "in the shared cloud and in a cloud of one's own",
        ),
        why=WHY,
    )


def _requests_of_tenant(trace: ListedTrace, tenant: str) -> list[Chunk]:
    """Return the requests of one tenant of the simulated day."""
    parts = []
    for chunk in trace.parts:
        rows = np.flatnonzero(np.array(chunk.tenant) == tenant)
        parts.append(
            dataclasses.replace(
                chunk,
                tenant=(tenant,) * len(rows),
                request_constraints=tuple(chunk.request_constraints[row] for row in rows.tolist()),
                **{
                    name: getattr(chunk, name)[rows]
                    for name in ("arrival_s", "lifetime_s", "demand", "count", "min_count")
                },
            )
        )
    return [part for part in parts if len(part)]


def _ratio_table(tenants: Sequence[str], ratios: dict[str, FloatArray]) -> Table:
    """Return the table behind a figure: the completed part of each tenant, by setting."""
    return Table(
        name="completed",
        columns=("tenant", *ratios),
        rows=[
            (tenant, *(float(each[place]) for each in ratios.values()))
            for place, tenant in enumerate(tenants)
        ],
    )


def _draw_sorted_ratios(ratios: dict[str, FloatArray], where: str) -> Callable[[], Plot]:
    """Return a function that draws users' completed parts, sorted, one line for each setting."""
    return line_plotter(
        f"Part of their tasks that users complete {where}",
        "Users stand in order of what they complete under each; higher is better.",
        {
            "completed (% of a user's tasks)": {
                name: (100 * np.arange(1, len(each) + 1) / len(each), 100 * np.sort(each))
                for name, each in ratios.items()
            }
        },
        over="users in order (% of users)",
    )


ITEMS: Final = (
    drfh_item("drfh-fig7", "Fig. 7", "completion times of jobs, by their size", _reproduce_fig7),
    drfh_item("drfh-fig8", "Fig. 8", "part of its tasks that each user completes", _reproduce_fig8),
    drfh_item(
        "drfh-fig9", "Fig. 9", "sharing against a dedicated cloud for each user", _reproduce_fig9
    ),
)
