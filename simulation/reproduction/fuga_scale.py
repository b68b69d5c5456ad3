"""FUGA, Fig. 6, use against first-fit on 50 to 700 hosts, and Fig. 7, use over 29 days."""

from __future__ import annotations

from typing import Final

import numpy as np

from placement import FloatArray, Snapshot, allocation_bound
from simulation.report.data import thinned
from simulation.reproduction.drawing import lines
from simulation.reproduction.model import Item, Outcome, Paper, Setup, Statement, Table
from simulation.reproduction.playing import Played, play, use_over_time
from simulation.reproduction.problems import a_round, placed
from simulation.reproduction.workloads import (
    DAY_S,
    INSTEAD,
    RESOURCES,
    google_hosts,
    google_trace,
)
from simulation.slots.choice import Choice

_FUGA, _FIRST = "fuga", "first_fit"
_POLICIES: Final = (_FUGA, _FIRST)
_NAMES: Final = ("CPU", "memory")
#: Cores and MiB of the paper's types: tiny, small, medium, large, extra large.
_TYPES: Final = ((1, 1024), (1, 3072), (2, 6144), (4, 12288), (8, 24576))
_MOST_VMS: Final = 20  #: of one request
_TENANTS: Final = 20
_LOAD: Final = 1.3  #: cores asked for over those there are
_SIZES: Final = (50, 100, 200, 300, 400, 500, 600, 700)
_FIG_6_ALPHA: Final = 5.0
_FIG_7: Final = {"alpha": 2.0, "eta": 10, "patience": 0}
_FIG_7_LOAD: Final = 1.2
#: Of the means of two policies: less is called the same.
_SAME: Final = 0.002


def _a_round(hosts: int, seed: int) -> Snapshot:
    """Return a round of requests of the five types, equally many cores of each."""
    capacity = google_hosts(hosts, seed)
    rng = np.random.default_rng([seed, hosts, 6])
    wanted = _LOAD * int(capacity[:, 0].sum()) / len(_TYPES)
    rows: list[tuple[int, int]] = []
    for number, (cores, _) in enumerate(_TYPES):
        left = round(wanted / cores)
        while left > 0:
            count = min(left, int(rng.integers(1, _MOST_VMS, endpoint=True)))
            rows.append((number, count))
            left -= count
    order = rng.permutation(len(rows))
    types, counts = np.array(rows)[order].T
    demands = np.array(_TYPES)[types]
    tenant = rng.integers(0, _TENANTS, len(rows))
    tenant[:_TENANTS] = np.arange(_TENANTS)
    return a_round(RESOURCES, capacity, demands.tolist(), counts.tolist(), tenant.tolist())


def _fig6(setup: Setup) -> Outcome:
    sizes = _SIZES[:2] if setup.quick else _SIZES
    used: dict[str, list[FloatArray]] = {policy: [] for policy in _POLICIES}
    bounds = []
    for number, size in enumerate(sizes):
        snapshot = _a_round(size, setup.seed)
        for policy in _POLICIES:
            told = {"alpha": _FIG_6_ALPHA, "patience": 0} if policy == _FUGA else {}
            rows = placed(policy, snapshot, seed=setup.seed, **told).placed
            taken = (rows[:, 2:] * snapshot.demand[rows[:, 0]]).sum(axis=0)
            used[policy].append(taken / snapshot.pool)
        bounds.append(allocation_bound(snapshot, 0) / float(snapshot.pool[0]))
        setup.tell((number + 1) / len(sizes))
    both = {policy: np.array(each) for policy, each in used.items()}
    more = both[_FUGA] - both[_FIRST]
    below = float((np.array(bounds) - both[_FUGA][:, 0]).max())
    return Outcome(
        statements=(
            Statement(
                says="FUGA allocates more CPU than first-fit, whatever the number of hosts",
                found=f"{100 * more[:, 0].min():+.1f} to {100 * more[:, 0].max():+.1f} points; "
                f"{100 * below:.1f} below the bound of linear programming at most",
                holds=bool((more[:, 0] > 0).all()),
            ),
            Statement(
                says="FUGA allocates more memory than first-fit, whatever the number of hosts",
                found=f"{100 * more[:, 1].min():+.1f} to {100 * more[:, 1].max():+.1f} points",
                holds=bool((more[:, 1] > 0).all()),
            ),
        ),
        tables=(
            Table(
                name="allocated",
                columns=("hosts", "policy", "cpu", "memory", "cpu_bound"),
                rows=[
                    (size, policy, *both[policy][row].tolist(), bounds[row])
                    for policy in _POLICIES
                    for row, size in enumerate(sizes)
                ],
            ),
        ),
        draw=lines(
            f"What is allocated of clusters of different sizes, alpha = {_FIG_6_ALPHA:g}",
            "Higher is better: 1.3 times all cores are asked for.",
            {
                f"{name} allocated\n(% of the pool)": {
                    policy: (sizes, 100 * each[:, r]) for policy, each in both.items()
                }
                for r, name in enumerate(_NAMES)
            },
            over="hosts (number)",
            marks=True,
        ),
        why="Which VMs are asked for, and how much more than fits, is drawn here: where memory is "
        "not what is short, whoever places more cores need not place more memory.",
    )


def _fig7(setup: Setup) -> Outcome:
    number, days, slot_s, lives = (30, 1.0, 3600.0, 2) if setup.quick else (300, 29.0, 21600.0, 40)
    hosts = google_hosts(number, setup.seed)
    trace = google_trace(
        hosts, days=days, tenants=20, load=_FIG_7_LOAD, lives=lives, seed=setup.seed
    )
    played: dict[str, Played] = {}
    for done, policy in enumerate(_POLICIES):
        choice = Choice(
            policy=policy,
            parameters=_FIG_7 if policy == _FUGA else {},
            slot_length_s=slot_s,
            seed=setup.seed,
        )

        def tell(part: float, done: int = done) -> None:
            setup.tell((done + part) / len(_POLICIES))

        slots = round(days * DAY_S / slot_s)
        played[policy] = play(trace, hosts, choice, slots=slots, tell=tell)
    used = {
        policy: each.used[len(each.used) // 2 :].mean(axis=0) for policy, each in played.items()
    }
    return Outcome(
        statements=tuple(
            Statement(
                says=f"FUGA keeps as much {name} in use as first-fit, or more",
                found=f"{100 * used[_FUGA][r]:.1f} % against {100 * used[_FIRST][r]:.1f} %, in the "
                "mean over the second half",
                holds=bool(used[_FUGA][r] >= used[_FIRST][r] - _SAME),
            )
            for r, name in enumerate(_NAMES)
        ),
        tables=(use_over_time(played),),
        draw=lines(
            f"What is in use of {number} hosts over {days:g} days, eta = 10, alpha = 2",
            "Higher is better while VMs wait.",
            {
                f"{name} in use\n(% of the pool)": {
                    policy: thinned(each.start_s / DAY_S, 100 * each.used[:, r])
                    for policy, each in played.items()
                }
                for r, name in enumerate(_NAMES)
            },
            over="time (days)",
        ),
        why="The paper plays 29 days of Google's trace; here they are made, with lives forty times "
        "as long, so that fewer requests keep the hosts busy. Cores are what is short. FUGA serves "
        "tenants by their shares and first-fit in order of arrival, so the two do not run the same "
        "VMs, and how much memory is in use follows from which they run.",
    )


ITEMS: Final = (
    Item(
        name="fuga-fig6",
        paper=Paper.FUGA,
        place="Fig. 6",
        shows="allocated CPU and memory against first-fit on 50 to 700 hosts, alpha = 5",
        run=_fig6,
        instead="hosts in the proportions of Google's table of 2011; requests of the paper's five "
        "types, equally many cores of each, 1.3 times all cores in sum",
    ),
    Item(
        name="fuga-fig7",
        paper=Paper.FUGA,
        place="Fig. 7",
        shows="use of 300 hosts over 29 days, eta = 10 and alpha = 2",
        run=_fig7,
        instead=INSTEAD,
    ),
)
