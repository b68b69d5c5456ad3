"""The server procedure of PS-DSF as it was published."""

from __future__ import annotations

from typing import Final

import numpy as np

from placement.mechanisms.psdsf.servers import ServerClass
from placement.model.arrays import BoolArray, FloatArray, IntArray

#: Levels, and parts of a server, closer than this are equal. Relative: the
#: procedure on large pools would end early by any absolute tolerance.
TOLERANCE: Final = 1e-11
#: Moves of one step, per tenant and resource; a few are usual.
_MAX_MOVES: Final = 200


class PublishedProcedure:
    """Moves resources from tenants of the highest virtual share to the lowest [1]_.

    Steps 1 to 4 of the paper's server procedure, on what the server divides at
    the moment:

    1. A is every tenant that can have tasks here.
    2. S is the least level in A, B the tenants at that level, R the used up
       resources that a tenant in B demands.
    3. If no tenant in A that holds some r of R here is above S, every tenant that
       demands r leaves A, and we are back at 2.
    4. Else each r of R has a donor: of the tenants that hold it, the one of
       the highest level. Donors give up a part beta of what they have here, and B shares
       that and what is free: as far as both meet, or it lasts.

    Notes
    -----
    A donor of two resources is one donor. Tenants with all the tasks they want
    do not count in step 2, but they may have to give; a tenant that reaches its
    count ends the move (derived: the paper's tenants want without bound).

    References
    ----------
    .. [1] Khamse-Ashari et al., "Per-Server Dominant-Share Fairness (PS-DSF): A
       Multi-Resource Fair Allocation Mechanism for Heterogeneous Servers",
       2016, the algorithm of Section IV.
    """

    def __call__(self, server: ServerClass, elsewhere: FloatArray, here: FloatArray) -> FloatArray:
        """Return the server's new tasks of each tenant, shape (n,)."""
        here = here.copy()
        demanded = server.use > 0
        inside = np.ones(len(here), dtype=np.bool_)
        for _ in range(_MAX_MOVES * (1 + demanded.size)):
            total = elsewhere + here
            level = total / server.rate
            unsatisfied = total < server.maximum * (1 - TOLERANCE)
            wanting = inside & unsatisfied
            if not wanting.any():
                break
            minimum = float(level[wanting].min())
            lowest = wanting & (level <= minimum * (1 + TOLERANCE))
            takes = (here / server.rate)[:, None] * server.use
            free = np.maximum(server.room - takes.sum(axis=0), 0.0)
            # Of what is divided here, so that dust on a full server is dust.
            dust = TOLERANCE * server.room
            scarce = np.flatnonzero((free <= dust) & demanded[lowest].any(axis=0))
            holds = inside[:, None] & (takes > dust)
            donors, spent = _donors(level, minimum, holds, scarce)
            if spent:
                inside &= ~demanded[:, spent].any(axis=1)
            else:
                givers = np.array(donors, dtype=np.int64)
                moved = _tasks_after_move(server, (elsewhere, here), (lowest, givers), free)
                if moved is None:
                    break
                here = moved
        return here


def _donors(
    level: FloatArray, minimum: float, holds: BoolArray, scarce: IntArray
) -> tuple[list[int], list[int]]:
    """Return the tenants that give up resources (step 4), and scarce resources without one."""
    donors: list[int] = []
    spent: list[int] = []
    for r in scarce.tolist():
        heights = np.where(holds[:, r], level, -np.inf)
        highest = int(heights.argmax())
        if heights[highest] <= minimum * (1 + TOLERANCE):
            spent.append(r)
        elif highest not in donors:
            donors.append(highest)
    return donors, spent


def _tasks_after_move(
    server: ServerClass,
    tasks: tuple[FloatArray, FloatArray],
    parties: tuple[BoolArray, IntArray],
    free: FloatArray,
) -> FloatArray | None:
    """Return the server's tasks after step 4 of the procedure, (n,); None if nothing moves.

    ``tasks`` are elsewhere and here, ``parties`` the lowest and the donors.
    """
    elsewhere, here = tasks
    lowest, donors = parties
    level = (elsewhere + here) / server.rate
    minimum = float(level[lowest].min())
    own = here[donors] / server.rate[donors]
    offered = free + own @ server.use[donors]
    used = server.use[lowest].sum(axis=0)
    rise = float((offered[used > 0] / used[used > 0]).min())
    if rise <= 0:
        return None
    lacking = (server.maximum - elsewhere - here)[lowest] / server.rate[lowest]
    meet = (level[donors] - minimum) / (rise + own)
    beta = min(1.0, float(meet.min(initial=np.inf)), float(lacking.min() / rise))
    after = here.copy()
    after[donors] *= 1.0 - beta
    after[lowest] += beta * rise * server.rate[lowest]
    return after if beta > 0 else None
