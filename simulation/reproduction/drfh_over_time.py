"""DRFH, Fig. 5: three users join and one leaves on a hundred servers."""

from __future__ import annotations

from typing import Final

import numpy as np

from placement import IntArray
from simulation.reproduction.model import Item, ItemOutcome, Number, Paper, Setup, Statement, Table
from simulation.reproduction.plots import line_plotter
from simulation.reproduction.trace_replay import ListedTrace, play_trace, request_chunk
from simulation.slots.slot_decider import SimulatedPolicy

#: A unit is the largest server's CPU or memory.
_UNIT: Final = 10_000
#: How many of 100 servers, and their CPU and memory, to four digits as Google published them.
#: Of all draws from its table with the paper's totals, 52.75 and 51.32 units, the likeliest.
_SERVERS: Final = (
    (6, 1.0, 1.0),
    (58, 0.5, 0.4995),
    (19, 0.5, 0.2493),
    (15, 0.5, 0.749),
    (1, 0.25, 0.2498),
    (1, 0.5, 0.1241),
)
_TOTALS: Final = (52.75, 51.32)
#: CPU and memory of a task of each user, and when it joins.
_USERS: Final = {
    "user 1": ((0.2, 0.3), 0.0),
    "user 2": ((0.5, 0.1), 200.0),
    "user 3": ((0.1, 0.3), 500.0),
}
_LEAVES_S, _END_S = 1080.0, 1500.0
#: Shortest and longest life of a task, and how many of one life.
_LIFE_S: Final = (10, 40)
_TOGETHER: Final = 20
_REQUESTS: Final = 400
#: The time after a user joins until tasks that ran before have ended.
_SETTLING_S: Final = 100.0
_STAGES: Final = (
    ("user 1 alone", (0.0, 200.0), ("user 1",), 0.62),
    ("users 1 and 2", (200.0, 500.0), ("user 1", "user 2"), 0.44),
    ("users 1, 2 and 3", (500.0, 1080.0), ("user 1", "user 2", "user 3"), 0.26),
)


def _server_capacity() -> IntArray:
    """Return the capacity of the hundred servers of Fig. 5, (H, 2)."""
    rows = [
        (round(cpu * _UNIT), round(memory * _UNIT))
        for count, cpu, memory in _SERVERS
        for _ in range(count)
    ]
    return np.array(rows, dtype=np.int64)


def _three_user_trace(seed: int) -> ListedTrace:
    """Return the requests of Fig. 5: three users that join at different times."""
    rng = np.random.default_rng(seed)
    rows = [
        (
            joins_s,
            float(rng.integers(*_LIFE_S, endpoint=True)),
            user,
            tuple(round(part * _UNIT) for part in task),
            _TOGETHER,
        )
        for user, (task, joins_s) in _USERS.items()
        for _ in range(_REQUESTS)
    ]
    return ListedTrace(resources=("cpu", "memory"), parts=[request_chunk(rows)])


def _reproduce_fig5(setup: Setup) -> ItemOutcome:
    """Reproduce Fig. 5 of DRFH: shares and use while three users join and one leaves."""
    slot_s = 5.0 if setup.quick else 2.0
    servers = _server_capacity()
    choice = SimulatedPolicy(
        policy="best_fit_drfh",
        parameters={"patience": 0},
        budget_units=None,
        slot_length_s=slot_s,
        seed=setup.seed,
    )
    played = play_trace(
        _three_user_trace(setup.seed),
        servers,
        choice,
        slots=round(_END_S / slot_s),
        leaves={round(_LEAVES_S / slot_s): "user 1"},
        report=setup.report,
    )
    numbers = [
        Number(
            what=f"{name} of all servers",
            paper=paper,
            ours=float(total),
            unit="units",
            within=0.005,
            exact=True,
        )
        for name, paper, total in zip(
            ("CPU", "memory"), _TOTALS, servers.sum(axis=0) / _UNIT, strict=True
        )
    ]
    gaps = []
    for title, (from_s, to_s), users, paper in _STAGES:
        then = (played.start_s >= from_s + _SETTLING_S) & (played.start_s < to_s)
        means = [float(played.shares[user][then].mean()) for user in users]
        gaps.append(max(means) - min(means))
        numbers += [
            Number(
                what=f"dominant share of {user}, {title}",
                paper=100 * paper,
                ours=100 * mean,
                unit="% of the pool",
                within=2.0,
            )
            for user, mean in zip(users, means, strict=True)
        ]
    late = played.start_s >= _LEAVES_S + _SETTLING_S
    before = (played.start_s >= _STAGES[-1][1][0] + _SETTLING_S) & (played.start_s < _LEAVES_S)
    rise = [
        float(played.shares[user][late].mean() - played.shares[user][before].mean())
        for user in ("user 2", "user 3")
    ]
    return ItemOutcome(
        numbers=tuple(numbers),
        statements=(
            Statement(
                says="users who are there have equal dominant shares soon after one joined",
                found=f"from {_SETTLING_S:.0f} s on they are {100 * max(gaps):.1f} points apart "
                "in the mean at most",
                holds=max(gaps) <= 0.02,
            ),
            Statement(
                says="when user 1 has left, the others rise",
                found=f"by {100 * rise[0]:.1f} and {100 * rise[1]:.1f} points",
                holds=min(rise) > 0,
            ),
        ),
        tables=(
            Table(
                name="shares",
                columns=("second", "cpu_used", "memory_used", *_USERS),
                rows=[
                    (
                        float(second),
                        *played.used[row].tolist(),
                        *(float(played.shares[user][row]) for user in _USERS),
                    )
                    for row, second in enumerate(played.start_s)
                ],
            ),
        ),
        draw=line_plotter(
            "Shares of three users who join at 0, 200 and 500 s; user 1 leaves at 1080 s",
            "As a user joins, the others' tasks end and are not replaced until all shares are "
            "equal.",
            {
                "dominant share\n(% of the pool)": {
                    user: (played.start_s, 100 * played.shares[user]) for user in _USERS
                },
                "in use\n(% of the pool)": {
                    name: (played.start_s, 100 * played.used[:, r])
                    for r, name in enumerate(("cpu", "memory"))
                },
            },
            over="time (s)",
        ),
        why="The paper does not print which servers were drawn, nor how long tasks run; here "
        f"they run {_LIFE_S[0]} to {_LIFE_S[1]} s.",
    )


ITEMS: Final = (
    Item(
        name="drfh-fig5",
        paper=Paper.DRFH,
        place="Fig. 5",
        shows="shares of three users who join and leave on 100 servers, Best-Fit DRFH",
        run=_reproduce_fig5,
        instead="the 100 servers are the likeliest draw from Google's table with the paper's "
        "totals; lives of tasks are drawn",
    ),
)
