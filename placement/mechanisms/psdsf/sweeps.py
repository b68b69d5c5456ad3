"""PS-DSF server by server: sweeps in turn, or steps in any order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

import numpy as np

from placement.errors import ParameterError, ShapeMismatchError
from placement.mechanisms.model import DivisibleProblem
from placement.mechanisms.psdsf.published_procedure import PublishedProcedure
from placement.mechanisms.psdsf.servers import ServerClass, ServerStep, build_servers, held_tasks
from placement.mechanisms.psdsf.water_filling import WaterFilling
from placement.model.arrays import BoolArray, FloatArray

Procedure: TypeAlias = Literal["water_filling", "published"]

PROCEDURES: Final[Mapping[Procedure, Callable[[], ServerStep]]] = MappingProxyType(
    {"water_filling": WaterFilling, "published": PublishedProcedure}
)

#: Sweeps without leaps at the beginning, and from one leap to the next.
_FIRST_SWEEPS: Final = 8
_SWEEPS_PER_LEAP: Final = 2
#: The cosine between one sweep's change and the next that calls for a leap.
_STRAIGHT: Final = 0.99
_LONGEST_LEAP: Final = 1e3
#: Part of a tenant's tasks that is nothing.
_DUST: Final = 1e-14
_TINY: Final = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SweepResult:
    """The result of the sweeps of PS-DSF over all servers."""

    tasks: FloatArray  #: (N, K)
    rounds: int
    moved: float  #: what the last sweep still moved, as a part of a tenant's tasks
    leaps: int


class TaskMatrix:
    """The tasks of each tenant on each server, (N, K), and their totals, updated by steps."""

    def __init__(self, problem: DivisibleProblem, tasks: FloatArray) -> None:
        self.tasks = tasks
        self._held = held_tasks(problem)
        self.recompute_totals()

    def recompute_totals(self) -> None:
        """Recompute the tenants' total tasks, so that rounding errors do not add up."""
        self._totals = self._held + self.tasks.sum(axis=1)

    def run(self, server: ServerClass, step: ServerStep) -> float:
        """Run a server's step of PS-DSF; return the largest part of a tenant's tasks that moved."""
        tenants = server.tenants
        if len(tenants) == 0:
            return 0.0
        here = self.tasks[tenants, server.place]
        total = self._totals[tenants]
        elsewhere = np.maximum(total - here, self._held[tenants])
        new = step(server, elsewhere, here)
        after = elsewhere + new
        self.tasks[tenants, server.place] = new
        self._totals[tenants] = after
        maximum = np.maximum(total, after)
        change = np.abs(new - here)
        return float((change / np.maximum(maximum, _TINY)).max())


def drf_per_server(problem: DivisibleProblem, servers: Sequence[ServerClass]) -> FloatArray:
    """Return each tenant's tasks on each server, (N, K), if DRF divided every server alone.

    The sweeps start from this. A tenant's maximum of tasks is reduced by its tasks on earlier
    servers; the paper leaves this open.
    """
    tasks = np.zeros(problem.eligible.shape)
    held = held_tasks(problem)
    for server in servers:
        if len(server.tenants) == 0:
            continue
        tenants = server.tenants
        before = tasks[tenants].sum(axis=1)
        alone = replace(server, maximum=server.maximum - before)
        new = WaterFilling()(alone, held[tenants], np.zeros(len(tenants)))
        tasks[tenants, server.place] = new
    return tasks


def sweep_until_converged(
    problem: DivisibleProblem,
    *,
    procedure: Procedure = "water_filling",
    max_rounds: int = 500,
    tolerance: float = 1e-9,
) -> SweepResult:
    """Let the servers run their steps of PS-DSF in turn until the task matrix converges.

    Parameters
    ----------
    procedure : "water_filling" or "published"
    max_rounds : int
        Most sweeps over all servers.
    tolerance : float
        The matrix has converged when a sweep moves no more than this part of any
        tenant's tasks on any server.

    Notes
    -----
    Algorithm I of [1]_: from DRF on each server, sweeps until nothing changes.
    Totals may converge before the split does, so the matrix counts.

    Between two kinks a sweep is an affine map, and where servers differ little
    it can creep along one line for hundreds of sweeps. When two changes in
    succession have one direction, water filling leaps along it: by what a
    geometric series of that ratio adds up to, until a tenant would leave a
    server (derived). The next sweep makes every server feasible again, and
    where the sweeps end is judged by Theorem 1, not by the way there.

    References
    ----------
    .. [1] Khamse-Ashari et al., "Per-Server Dominant-Share Fairness (PS-DSF)",
       2016, Algorithm I.
    """
    servers = build_servers(problem)
    step = _server_step(procedure)
    matrix = TaskMatrix(problem, drf_per_server(problem, servers))
    change = np.zeros_like(matrix.tasks)
    rounds, leaps, moved = 0, 0, np.inf
    while rounds < max_rounds and moved > tolerance:
        before, change_before = matrix.tasks.copy(), change
        matrix.recompute_totals()
        moved = max((matrix.run(server, step) for server in servers), default=0.0)
        rounds += 1
        change = matrix.tasks - before
        leaping = rounds > _FIRST_SWEEPS and rounds % _SWEEPS_PER_LEAP == 0
        if procedure == "water_filling" and leaping and tolerance < moved and rounds < max_rounds:
            length = _leap_length(matrix.tasks, change, change_before)
            if length > 0:
                matrix.tasks = np.maximum(matrix.tasks + length * change, 0.0)
                leaps += 1
    return SweepResult(
        tasks=clip_to_room(problem, matrix.tasks),
        rounds=rounds,
        moved=0.0 if moved == np.inf else moved,
        leaps=leaps,
    )


def _leap_length(tasks: FloatArray, change: FloatArray, before: FloatArray) -> float:
    """Return how many more times the sweep's ``change``, (N, K), may be made at once."""
    total = np.maximum(tasks.sum(axis=1), _TINY)[:, None]
    now, then = change / total, before / total
    along, long, length = float((now * then).sum()), float((then**2).sum()), float((now**2).sum())
    if not along > _STRAIGHT * np.sqrt(long * length):
        return 0.0
    ratio = along / long
    repeats = min(ratio / (1 - ratio), _LONGEST_LEAP) if ratio < 1 else _LONGEST_LEAP
    leaving = (change < -_DUST * total) & (tasks > _DUST * total)
    repeats = min(repeats, float((tasks[leaving] / -change[leaving]).min(initial=np.inf)))
    return repeats if repeats > 0.5 else 0.0


def step_until_converged(
    problem: DivisibleProblem,
    rng: np.random.Generator,
    *,
    max_rounds: int = 500,
    tolerance: float = 1e-9,
) -> SweepResult:
    """Let the servers run their steps of PS-DSF independently until the matrix converges.

    Parameters
    ----------
    rng : numpy.random.Generator
        Draws the order in which the servers run in each round.
    max_rounds, tolerance
        See `sweep_until_converged`; in a round each server runs one step.

    Notes
    -----
    Algorithm II of [1]_: a server knows its own tasks and each user's total and
    nothing else, so there is no common start and there are no leaps.

    References
    ----------
    .. [1] Khamse-Ashari et al., "Per-Server Dominant-Share Fairness (PS-DSF)",
       2016, Algorithm II.
    """
    servers = build_servers(problem)
    step = _server_step("water_filling")
    matrix = TaskMatrix(problem, np.zeros(problem.eligible.shape))
    rounds, moved = 0, np.inf
    while rounds < max_rounds and moved > tolerance:
        matrix.recompute_totals()
        order = rng.permutation(len(servers)).tolist()
        moved = max((matrix.run(servers[place], step) for place in order), default=0.0)
        rounds += 1
    return SweepResult(
        tasks=clip_to_room(problem, matrix.tasks),
        rounds=rounds,
        moved=0.0 if moved == np.inf else moved,
        leaps=0,
    )


@dataclass(frozen=True, slots=True, eq=False)
class ScheduledStep:
    """One server's step in a schedule of PS-DSF."""

    server: int  #: an index of K
    active: BoolArray | None = None  #: (N,) tenants with demand from now on; None: as before


def distributed_steps(
    problem: DivisibleProblem,
    schedule: Iterable[ScheduledStep],
    *,
    procedure: Procedure = "water_filling",
    start: FloatArray | None = None,
) -> Iterator[FloatArray]:
    """Yield the task matrix (N, K) of PS-DSF after each server step of a schedule.

    Parameters
    ----------
    schedule : iterable of ScheduledStep
        Any order, any number of times; may be endless.
    procedure : "water_filling" or "published"
    start : ndarray, shape (N, K), optional
        The matrix to begin with, feasible; default nothing anywhere.

    Raises
    ------
    ShapeMismatchError
        If ``start`` or an ``active`` does not fit the problem.
    ParameterError
        For an unknown procedure or server.

    Notes
    -----
    The distributed form of [1]_: a server knows its own tasks and each user's
    total, and divides again what it has, on a schedule of its own. When a user
    becomes inactive its row is set to zero at once; servers find out what that
    leaves free as they run.

    References
    ----------
    .. [1] Khamse-Ashari et al., "Per-Server Dominant-Share Fairness (PS-DSF)",
       2016, Section V.
    """
    tenants, classes = problem.eligible.shape
    active = np.ones(tenants, dtype=np.bool_)
    if start is not None and start.shape != (tenants, classes):
        raise ShapeMismatchError("start", start.shape, (tenants, classes))
    step = _server_step(procedure)
    servers = build_servers(problem)
    matrix = TaskMatrix(problem, np.zeros((tenants, classes)) if start is None else start.copy())
    for event in schedule:
        if event.active is not None and (event.active != active).any():
            if event.active.shape != (tenants,):
                raise ShapeMismatchError("active", event.active.shape, (tenants,))
            active = event.active.copy()
            matrix.tasks[~active] = 0.0
            servers = build_servers(replace(problem, eligible=problem.eligible & active[:, None]))
        if not 0 <= event.server < classes:
            raise ParameterError("server", event.server, f"an index below {classes}")
        matrix.recompute_totals()
        matrix.run(servers[event.server], step)
        yield matrix.tasks.copy()


def _server_step(procedure: Procedure) -> ServerStep:
    """Make the server's step of PS-DSF by the name of its procedure."""
    if procedure not in PROCEDURES:
        raise ParameterError("procedure", procedure, " | ".join(PROCEDURES))
    return PROCEDURES[procedure]()


def clip_to_room(problem: DivisibleProblem, tasks: FloatArray) -> FloatArray:
    """Reduce ``tasks`` (N, K) where rounding errors exceed the free room or the demand."""
    total = tasks.sum(axis=1)
    fits = np.divide(problem.count, total, out=np.ones_like(total), where=total > problem.count)
    tasks = tasks * fits[:, None]
    used = np.einsum("nk,nr->kr", tasks / problem.speed, problem.demand)
    fits = np.divide(problem.free, used, out=np.ones_like(used), where=used > problem.free)
    within: FloatArray = tasks * fits.min(axis=1, initial=1.0)
    return within
