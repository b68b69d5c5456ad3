"""DRFH, Table II and Fig. 6 to 9: a day of a cluster under Best-Fit, First-Fit and Slots."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from placement import FloatArray, IntArray
from simulation.report.data import reached, thinned
from simulation.report.plots import Plot
from simulation.reproduction.drawing import bars, lines
from simulation.reproduction.model import Item, Number, Outcome, Paper, Setup, Statement, Table
from simulation.reproduction.playing import Listed, Played, play, use_over_time
from simulation.reproduction.problems import a_round, placed
from simulation.reproduction.workloads import (
    DAY_S,
    INSTEAD,
    RESOURCES,
    google_hosts,
    google_trace,
    tenants_of,
)
from simulation.slots.choice import Choice
from simulation.traces.chunks import Chunk

_BEST, _FIRST, _SLOTS = "best_fit_drfh", "first_fit_drfh", "slots"
_DRFH: Final = (_BEST, _FIRST)
_POLICIES: Final = (*_DRFH, _SLOTS)
_SLOTS_OF_LARGEST: Final = (10, 12, 14, 16, 20)
_CHOSEN: Final = 14
#: Cores asked for over those there are. Lives have a heavy tail: much of the work of a day's
#: requests lies beyond its end.
_LOAD: Final = 1.6
#: Sizes of jobs, as the paper groups them, as far as the generator's jobs go.
_SIZES: Final = ((1, 50), (51, 100), (101, 500))
#: DRFH uses "significantly" more than Slots: at least so many times as much.
_MUCH_MORE: Final = 1.25
_NAMES: Final = ("CPU", "memory")


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _Day:
    """The cluster and what is asked of it."""

    hosts: IntArray
    trace: Listed
    tenants: Sequence[str]
    slots: int
    slot_s: float


def _day(setup: Setup) -> _Day:
    number, days, tenants, lives = (60, 0.25, 20, 1) if setup.quick else (2000, 1.0, 100, 6)
    slot_s = 600.0 if setup.quick else 1200.0
    hosts = google_hosts(number, setup.seed)
    trace = google_trace(
        hosts, days=days, tenants=tenants, load=_LOAD, lives=lives, seed=setup.seed
    )
    return _Day(
        hosts=hosts,
        trace=trace,
        tenants=tenants_of(trace),
        slots=round(days * DAY_S / slot_s),
        slot_s=slot_s,
    )


def _choice(policy: str, slot_s: float, seed: int) -> Choice:
    told = {"slots": _CHOSEN} if policy == _SLOTS else {"patience": 0}
    return Choice(
        policy=policy, parameters=told, budget_units=None, slot_length_s=slot_s, seed=seed
    )


def _played(setup: Setup) -> dict[str, Played]:
    """Return the day under each policy."""

    def run() -> dict[str, Played]:
        day, done = _day(setup), 0

        def tell(part: float) -> None:
            setup.tell((done + part) / len(_POLICIES))

        found = {}
        for policy in _POLICIES:
            choice = _choice(policy, day.slot_s, setup.seed)
            found[policy] = play(day.trace, day.hosts, choice, slots=day.slots, tell=tell)
            done += 1
        return found

    return setup.shared("drfh day", run)


def _table2(setup: Setup) -> Outcome:
    """Fill the empty cluster once, with more than it holds."""
    day = _day(setup)
    chunks = day.trace.parts
    place = {tenant: number for number, tenant in enumerate(day.tenants)}
    snapshot = a_round(
        RESOURCES,
        day.hosts,
        np.concatenate([chunk.demand for chunk in chunks]).tolist(),
        np.concatenate([chunk.count for chunk in chunks]).tolist(),
        [place[tenant] for chunk in chunks for tenant in chunk.tenant],
    )
    pool = snapshot.pool

    def used(policy: str, parameters: dict[str, int]) -> FloatArray:
        rows = placed(policy, snapshot, seed=setup.seed, **parameters).placed
        taken = (rows[:, 2:] * snapshot.demand[rows[:, 0]]).sum(axis=0)
        part: FloatArray = taken / pool
        return part

    best = used(_BEST, {"patience": 0})
    found = {}
    for number, slots in enumerate(_SLOTS_OF_LARGEST):
        found[slots] = used(_SLOTS, {"slots": slots})
        setup.tell((number + 1) / len(_SLOTS_OF_LARGEST))
    cpu = [float(each[0]) for each in found.values()]
    highest = max(found.values(), key=lambda each: float(each.sum()))
    return Outcome(
        statements=(
            Statement(
                says="whatever the size of slots, much is wasted that Best-Fit DRFH uses",
                found=f"the best size uses {_percents(highest)}, Best-Fit {_percents(best)}",
                holds=bool((best >= _MUCH_MORE * highest).all()),
            ),
            Statement(
                says="how much is used depends on the size of slots",
                found=f"CPU from {100 * min(cpu):.1f} to {100 * max(cpu):.1f} %",
                holds=max(cpu) - min(cpu) >= 0.01,
            ),
        ),
        tables=(
            Table(
                name="use",
                columns=("slots_of_the_largest_server", "cpu_used", "memory_used"),
                rows=[
                    *((slots, *each.tolist()) for slots, each in found.items()),
                    ("best_fit_drfh", *best.tolist()),
                ],
            ),
        ),
        draw=bars(
            "What slots of different sizes use of a cluster that is asked for too much",
            "Higher is better; the last pair is Best-Fit DRFH on the same requests.",
            [*(f"{slots} slots" for slots in found), "Best-Fit"],
            {
                name: [*(100 * float(each[r]) for each in found.values()), 100 * float(best[r])]
                for r, name in enumerate(_NAMES)
            },
            over="slots in the largest server (number)",
            unit="in use (% of the pool)",
        ),
        why="The paper's table is of a trace that is not public as used there; it is the order "
        "that can be compared.",
    )


def _fig6(setup: Setup) -> Outcome:
    played = _played(setup)
    # Where nobody waits, use tells what was asked for; unless that is so all day.
    busy = np.all([each.waiting > 0 for each in played.values()], axis=0)
    busy |= not busy.any()
    used = {policy: each.used[busy].mean(axis=0) for policy, each in played.items()}
    hours = {policy: each.start_s / 3600 for policy, each in played.items()}
    return Outcome(
        statements=(
            Statement(
                says="Best-Fit uses no less than First-Fit",
                found=f"{_percents(used[_BEST])} against {_percents(used[_FIRST])}, in the mean "
                f"over {int(busy.sum())} of {len(busy)} slots: those in which VMs wait under all "
                "three",
                holds=float(used[_BEST].sum()) >= float(used[_FIRST].sum()) - 0.001,
            ),
            Statement(
                says="both use significantly more than Slots",
                found=f"Slots use {_percents(used[_SLOTS])}",
                holds=all(
                    (used[name] >= _MUCH_MORE * used[_SLOTS]).all() for name in _POLICIES[:2]
                ),
            ),
        ),
        tables=(use_over_time(played),),
        draw=lines(
            "What is in use of the cluster over the day",
            "Higher is better: more is asked for than there is room.",
            {
                f"{name} in use\n(% of the pool)": {
                    policy: thinned(hours[policy], 100 * each.used[:, r])
                    for policy, each in played.items()
                }
                for r, name in enumerate(_NAMES)
            },
            over="time (hours)",
        ),
        why=f"{_WHY} Best-Fit puts small and large VMs on one host where their shapes suit it, and "
        "may then have no host for the largest, which First-Fit, filling one host after the other, "
        "still has.",
    )


def _fig7(setup: Setup) -> Outcome:
    played = _played(setup)
    drfh, slots = played[_BEST], played[_SLOTS]
    both = np.isfinite(drfh.took_s) & np.isfinite(slots.took_s)
    rows: list[tuple[str, int, float, float, float]] = []
    for least, most in _SIZES:
        jobs = both & (drfh.asked >= least) & (drfh.asked <= most)
        if jobs.any():
            ours, theirs = (float(each.took_s[jobs].mean()) for each in (drfh, slots))
            rows.append((f"{least}-{most}", int(jobs.sum()), ours, theirs, 1 - ours / theirs))
    overall = 1 - float(drfh.took_s[both].mean()) / float(slots.took_s[both].mean())
    done = {policy: int(np.isfinite(each.took_s).sum()) for policy, each in played.items()}
    told = ", ".join(f"{100 * row[4]:.0f} % for {row[0]} tasks" for row in rows)
    curves = {}
    for policy in (_BEST, _SLOTS):
        took = np.sort(played[policy].took_s[both]) / 60
        minutes, part = reached(took, np.ones(len(took)))
        curves[policy] = thinned(minutes, 100 * part)
    return Outcome(
        statements=(
            Statement(
                says="jobs complete sooner under Best-Fit DRFH than under Slots",
                found=f"{100 * overall:.0f} % sooner in the mean over {int(both.sum()):,} jobs "
                f"that complete under both; {done[_BEST]:,} complete under DRFH, "
                f"{done[_SLOTS]:,} under Slots",
                holds=overall > 0 and done[_BEST] >= done[_SLOTS],
            ),
            Statement(
                says="larger jobs gain more",
                found=told,
                holds=len(rows) > 1 and rows[-1][4] > rows[0][4],
            ),
        ),
        tables=(
            Table(
                name="by_size",
                columns=("tasks", "jobs", "best_fit_drfh_s", "slots_s", "reduction"),
                rows=rows,
            ),
        ),
        draw=lines(
            "Completion times of jobs that complete under both policies",
            "A line further left and higher is better.",
            {"jobs completed within (%)": curves},
            over="time from arrival to the end of the last task (minutes)",
        ),
        why=_WHY,
    )


def _fig8(setup: Setup) -> Outcome:
    played, tenants = _played(setup), _day(setup).tenants
    drfh, slots = (played[policy].completed_of(tenants) for policy in (_BEST, _SLOTS))
    no_less = float((drfh >= slots).mean())
    return Outcome(
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
        tables=(_ratios(tenants, {_BEST: drfh, _SLOTS: slots}),),
        draw=_sorted_ratios({_BEST: drfh, _SLOTS: slots}, "under DRFH and under Slots"),
        why=_WHY,
    )


def _fig9(setup: Setup) -> Outcome:
    day = _day(setup)
    shared = _played(setup)[_BEST].completed_of(day.tenants)
    order = np.random.default_rng([setup.seed, 9]).permutation(len(day.hosts))
    alone = np.zeros(len(day.tenants))
    for number, tenant in enumerate(day.tenants):
        own = day.hosts[order[number :: len(day.tenants)]]
        choice = _choice(_BEST, day.slot_s, setup.seed)
        trace = Listed(resources=RESOURCES, parts=_of_tenant(day.trace, tenant))
        alone[number] = play(trace, own, choice, slots=day.slots).completed_of([tenant])[0]
        setup.tell((number + 1) / len(day.tenants))
    losing = float((shared < alone - 1e-9).mean())
    gain = float((shared - alone).mean())
    return Outcome(
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
        tables=(_ratios(day.tenants, {"shared": shared, "dedicated": alone}),),
        draw=_sorted_ratios(
            {"shared": shared, "dedicated": alone},
            "in the shared cloud and in a cloud of one's own",
        ),
        why=_WHY,
    )


def _of_tenant(trace: Listed, tenant: str) -> list[Chunk]:
    """Return the requests of one tenant."""
    parts = []
    for chunk in trace.parts:
        rows = np.flatnonzero(np.array(chunk.tenant) == tenant)
        parts.append(
            dataclasses.replace(
                chunk,
                tenant=(tenant,) * len(rows),
                wishes=tuple(chunk.wishes[row] for row in rows.tolist()),
                **{
                    name: getattr(chunk, name)[rows]
                    for name in ("arrival_s", "lifetime_s", "demand", "count", "min_count")
                },
            )
        )
    return [part for part in parts if len(part)]


def _ratios(tenants: Sequence[str], ratios: dict[str, FloatArray]) -> Table:
    return Table(
        name="completed",
        columns=("tenant", *ratios),
        rows=[
            (tenant, *(float(each[place]) for each in ratios.values()))
            for place, tenant in enumerate(tenants)
        ],
    )


def _sorted_ratios(ratios: dict[str, FloatArray], where: str) -> Callable[[], Plot]:
    return lines(
        f"Part of their tasks that users complete {where}",
        "Users stand in order of what they complete under each; higher is better.",
        {
            "completed (% of a user's tasks)": {
                name: (
                    100 * np.arange(1, len(each) + 1) / len(each),
                    100 * np.sort(each),
                )
                for name, each in ratios.items()
            }
        },
        over="users in order (% of users)",
    )


def _percents(used: FloatArray) -> str:
    return " and ".join(
        f"{100 * float(part):.1f} % of the {name}" for part, name in zip(used, _NAMES, strict=True)
    )


_WHY: Final = (
    "The paper plays a day of Google's trace with its own draw of 2,000 servers; neither is "
    "public as used there. Sizes and lives of our VMs are drawn, so the order of policies can be "
    "compared, and how large the effect is, only roughly."
)


def _item(name: str, place: str, shows: str, run: Callable[[Setup], Outcome]) -> Item:
    return Item(name=name, paper=Paper.DRFH, place=place, shows=shows, run=run, instead=INSTEAD)


ITEMS: Final = (
    _item(
        "drfh-table2",
        "Table II",
        "use of a cluster by Slots, of 10 to 20 in the largest server",
        _table2,
    ),
    _item("drfh-fig6", "Fig. 6", "use over a day by Best-Fit, First-Fit and Slots", _fig6),
    _item("drfh-fig7", "Fig. 7", "completion times of jobs, by their size", _fig7),
    _item("drfh-fig8", "Fig. 8", "part of its tasks that each user completes", _fig8),
    _item("drfh-fig9", "Fig. 9", "sharing against a dedicated cloud for each user", _fig9),
)
