"""FUGA, Fig. 4 and 5: shares of three services on eight hosts, by the game and by slots."""

from __future__ import annotations

from typing import Final

import numpy as np

from placement import FloatArray
from simulation.reproduction.drawing import lines
from simulation.reproduction.model import Item, Number, Outcome, Paper, Setup, Statement, Table
from simulation.reproduction.playing import Listed, Played, play, requests
from simulation.slots.choice import Choice

_RESOURCES: Final = ("vcpus", "memory_mib")
_GIB: Final = 1024
#: Eight hosts of two kinds: cores and GiB.
_HOSTS: Final = ((8, 16),) * 4 + ((8, 32),) * 4
#: VMs of the three services, of the paper's types: cores and GiB of Tiny, Small and Medium.
_SERVICES: Final = {"service 1": (1, 1), "service 2": (1, 3), "service 3": (2, 6)}
_END_S, _SLOT_S = 600.0, 10.0
_LIFE_S: Final = (20, 60)  #: shortest and longest life of a VM
_REQUESTS: Final = 300  #: of each service, over ten minutes, two VMs each
_TOGETHER: Final = 2
_STARTED_S: Final = 60.0
_POLICIES: Final = ("fuga", "slots")


def _played(setup: Setup) -> dict[str, Played]:
    """Return ten minutes under either policy."""
    rng = np.random.default_rng([setup.seed, 4])
    rows = [
        (
            float(rng.uniform(0, 0.8 * _END_S)) if number >= _REQUESTS // 4 else 0.0,
            float(rng.integers(*_LIFE_S, endpoint=True)),
            service,
            (cores, gib * _GIB),
            _TOGETHER,
        )
        for service, (cores, gib) in _SERVICES.items()
        for number in range(_REQUESTS)
    ]
    hosts = np.array([(cores, gib * _GIB) for cores, gib in _HOSTS], dtype=np.int64)

    def run(policy: str) -> Played:
        choice = Choice(
            policy=policy,
            parameters={"patience": 0} if policy == "fuga" else {},
            budget_units=None,
            slot_length_s=_SLOT_S,
            seed=setup.seed,
        )
        trace = Listed(resources=_RESOURCES, parts=[requests(rows)])
        return play(trace, hosts, choice, slots=round(_END_S / _SLOT_S), tell=setup.tell)

    return setup.shared("fuga cluster", lambda: {policy: run(policy) for policy in _POLICIES})


def _shares(played: Played) -> FloatArray:
    """Return the dominant shares of the services over time, (S, N)."""
    return np.array([played.shares[service] for service in _SERVICES]).T


def _deviation(played: Played) -> float:
    """Return how far shares lie from their mean, over that mean, in the mean over time."""
    shares = _shares(played)[played.start_s >= _STARTED_S]
    mean = shares.mean(axis=1, keepdims=True)
    return float((np.abs(shares - mean) / mean).mean())


def _fig4(setup: Setup) -> Outcome:
    played = _played(setup)
    fuga, slots = (_deviation(played[policy]) for policy in _POLICIES)
    return _outcome(
        played["fuga"],
        (
            Number(
                what="deviation of dominant shares from their mean under FUGA",
                paper=13.0,
                ours=100 * fuga,
                unit="%",
                within=5.0,
            ),
        ),
        Statement(
            says="dominant shares stay near each other",
            found=f"their deviation is {100 * fuga:.1f} %, under slots {100 * slots:.1f} %",
            holds=fuga < slots,
        ),
        "Dominant shares of three services under FUGA",
    )


def _fig5(setup: Setup) -> Outcome:
    played = _played(setup)
    fuga, slots = (_deviation(played[policy]) for policy in _POLICIES)
    return _outcome(
        played["slots"],
        (
            Number(
                what="by how much FUGA's deviation is smaller than that of slots",
                paper=41.0,
                ours=100 * (1 - fuga / slots),
                unit="%",
                within=15.0,
            ),
        ),
        Statement(
            says="equal slots are not equal dominant shares",
            found=f"the deviation is {100 * slots:.1f} %, under FUGA {100 * fuga:.1f} %",
            holds=slots > fuga,
        ),
        "Dominant shares of three services under equal slots",
    )


def _outcome(
    played: Played, numbers: tuple[Number, ...], statement: Statement, title: str
) -> Outcome:
    shares = _shares(played)
    return Outcome(
        numbers=numbers,
        statements=(statement,),
        tables=(
            Table(
                name="shares",
                columns=("second", *_SERVICES),
                rows=[
                    (float(second), *row.tolist())
                    for second, row in zip(played.start_s, shares, strict=True)
                ],
            ),
        ),
        draw=lines(
            title,
            "Lines that lie together are fair; every service asks for more than its part.",
            {
                "dominant share\n(% of the pool)": {
                    service: (played.start_s, 100 * shares[:, place])
                    for place, service in enumerate(_SERVICES)
                }
            },
            over="time (s)",
            steps=True,
        ),
        why="The paper measured services on real hosts, whose sizes and loads are not all "
        "printed, and does not define the deviation; here it is the mean distance of the shares "
        "from their mean, over that mean, from the first minute on.",
    )


_INSTEAD: Final = (
    "eight simulated hosts of two sizes, three services that each ask for one of the paper's "
    "types all the time, and the policy `slots` (14 in the largest host) for Hadoop's fair "
    "scheduler"
)

ITEMS: Final = (
    Item(
        name="fuga-fig4",
        paper=Paper.FUGA,
        place="Fig. 4",
        shows="dominant shares of three services over ten minutes on eight hosts, by FUGA",
        run=_fig4,
        instead=_INSTEAD,
    ),
    Item(
        name="fuga-fig5",
        paper=Paper.FUGA,
        place="Fig. 5",
        shows="the same by the slots of Hadoop's fair scheduler",
        run=_fig5,
        instead=_INSTEAD,
    ),
)
