"""The state of one server in a step of PS-DSF."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from placement.mechanisms.model import DivisibleProblem
from placement.mechanisms.tasks_alone import pool_fractions, tasks_alone
from placement.model.arrays import FloatArray, IntArray


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ServerClass:
    """A class of hosts, and the n tenants that can have tasks on it.

    The level of a tenant here is its virtual dominant share per weight: tasks
    on all servers, per ``weight * gamma`` of this one. Tasks count what is held
    (`held_tasks`).
    """

    place: int  #: its index of K
    tenants: IntArray  #: (n,) indices of N
    rate: FloatArray  #: (n,) tasks per unit of level: weight * gamma
    use: FloatArray  #: (n, R) of the server's capacity, per unit of level
    room: FloatArray  #: (R,) what may be divided, in fractions of the capacity
    maximum: FloatArray  #: (n,) tasks wanted in all, with what is held; maybe infinite


class ServerStep(Protocol):
    """A rule by which a server redistributes its resources, given only totals.

    Steps may remember their last answer to begin the next search there.
    """

    def __call__(self, server: ServerClass, elsewhere: FloatArray, here: FloatArray) -> FloatArray:
        """Return the new tasks here, (n,), given the tasks elsewhere (and held) and here."""
        ...


def held_tasks(problem: DivisibleProblem) -> FloatArray:
    """Return the resources that each tenant holds, counted in its tasks, shape (N,).

    Running VMs hold amounts, not tasks, so the count is the largest of held / demand over the
    demanded resources, at speed 1. The paper does not define this.
    """
    demanded = problem.demand > 0
    tasks: FloatArray = np.divide(
        problem.held, problem.demand, out=np.zeros(problem.held.shape), where=demanded
    ).max(axis=1, initial=0.0)
    return tasks


def build_servers(problem: DivisibleProblem) -> tuple[ServerClass, ...]:
    """Return the servers of PS-DSF, in the order of the problem's host classes.

    ``gamma`` is of capacity, what is divided is ``free``; a tenant's demand on a
    server follows from its speed there (effective capacities).
    """
    gamma = tasks_alone(problem)
    maximum = held_tasks(problem) + problem.count
    servers = []
    for place, capacity in enumerate(problem.capacity):
        tenants = np.flatnonzero(gamma[:, place] > 0)
        alone = gamma[tenants, place] / problem.speed[tenants, place]
        # Of the capacity when alone there: 1 in some resource, whatever the units.
        part = pool_fractions(problem.demand[tenants] * alone[:, None], capacity)
        servers.append(
            ServerClass(
                place=place,
                tenants=tenants,
                rate=problem.weight[tenants] * gamma[tenants, place],
                use=part * problem.weight[tenants, None],
                room=pool_fractions(problem.free[place], capacity),
                maximum=maximum[tenants],
            )
        )
    return tuple(servers)
