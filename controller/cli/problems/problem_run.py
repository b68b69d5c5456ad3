"""The work of `fuga solve`, from the bytes of the file to the answer."""

from __future__ import annotations

import dataclasses
import re
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from controller import debug
from controller.terminal.errors import BadInputError, CliError
from placement.catalog.names import entry_by_name, mechanism_by_name
from placement.catalog.policies import CatalogEntry
from placement.catalog.zone_policies import RoundPolicies
from placement.errors import (
    InfeasibleAllocationError,
    ParameterError,
    PlacementError,
    PluginError,
    PluginFailedError,
    ShapeMismatchError,
    SolverError,
    UnknownPolicyError,
)
from placement.mechanisms import MechanismEntry
from placement.mechanisms.check import check_division
from placement.mechanisms.errors import UnsupportedProblemError
from placement.model.decision import decide
from placement.solve.answer import whole_vm_answer
from placement.solve.division_answer import division_answer
from placement.solve.measures import allocation_measures
from placement.solve.problem import (
    FAR_APART,
    MAX_BYTES,
    MAX_SEED,
    Problem,
    ProblemFileError,
    WholeVmProblem,
    mechanism_parameters,
    policy_parameters,
    read_problem,
    to_divisible,
    to_whole_vms,
    unsupported_field_place,
    widest_extent,
)


def solve_problem(
    file: str,
    policy: str,
    seed: int | None,
    *,
    parameters: Mapping[str, object] | None = None,
    details: bool,
) -> dict[str, Any]:
    """Solve a problem file: read it, run the policy or mechanism, and check the result.

    Parameters
    ----------
    parameters : mapping of str to object, optional
        Those of the command line; they replace the file's of the same names.

    Raises
    ------
    BadInputError
        With the field or line of each error in the file.
    """
    try:
        entry = entry_by_name(policy)  # before the file: a slip in the name shows at once
        problem = _replace_parameters(read_problem(_read_problem_bytes(file)), parameters or {})
        seed = _choose_seed(problem, seed)
        if isinstance(entry, MechanismEntry):
            return _run_mechanism(problem, policy, entry, seed, details=details)
        return _run_policy(to_whole_vms(problem), policy, entry, seed, details=details)
    except UnsupportedProblemError as error:
        place = unsupported_field_place(error, problem)
        raise BadInputError(f"{_file_text(file)}: {place}: {policy}: {error.reason}") from error
    except SolverError as error:
        raise _solver_error(file, problem, policy, error) from error
    except PluginError as error:
        raise BadInputError(str(error)) from error
    except PluginFailedError as error:
        raise CliError(f"{error}{debug.trace_or_hint(error)}") from error
    except UnknownPolicyError as error:
        raise BadInputError(str(error)) from error
    except ProblemFileError as error:
        raise BadInputError(_faults_text(file, error, parameters or {})) from error
    except ParameterError as error:
        allowed, found = error.allowed, f"{error.found!r:.60}"
        place = _place_text(f"parameters.{error.name}", parameters or {})
        message = f"{place}: must be {allowed}, found {found}"
        raise BadInputError(f"{_file_text(file)}: {message}") from error
    except PlacementError as error:
        raise CliError(f"{_file_text(file)}: {policy}: {error}") from error
    except MemoryError as error:
        raise BadInputError(f"{_file_text(file)}: too large for this machine's memory") from error


def _run_policy(
    whole: WholeVmProblem, name: str, entry: CatalogEntry, seed: int, *, details: bool
) -> dict[str, Any]:
    """Run a policy on a problem, check the allocation, and return the answer."""
    who = RoundPolicies(policy=name, parameters=policy_parameters(whole, entry))
    policy, stopwatch = who.make_policy(), Stopwatch()
    allocation = decide(whole.snapshot, policy, seed=seed, budget_units=None, after=stopwatch.lap)
    try:
        who.check(whole.snapshot, allocation)
    except InfeasibleAllocationError as error:
        raise CliError(f"policy {name} broke a rule, please report it: {error}") from error
    stopwatch.lap("check")
    seconds = stopwatch.laps_s["set_aside"] + stopwatch.laps_s["policy"]
    answer = whole_vm_answer(name, whole, allocation, seconds=seconds, details=details)
    answer["details"] |= allocation_measures(whole, allocation, always=details)
    stopwatch.lap("measure")
    answer["details"]["timings"] = {f"{step}_seconds": s for step, s in stopwatch.laps_s.items()}
    return answer


class Stopwatch:
    """Measures the durations of consecutive steps, in seconds."""

    def __init__(self) -> None:
        self.laps_s: dict[str, float] = {}
        self._last_s = time.perf_counter()

    def lap(self, step: str) -> None:
        """Record the seconds since the last lap, or since the stopwatch was made."""
        before_s, self._last_s = self._last_s, time.perf_counter()
        self.laps_s[step] = self._last_s - before_s


def _run_mechanism(
    problem: Problem, name: str, entry: MechanismEntry, seed: int, *, details: bool
) -> dict[str, Any]:
    """Run a mechanism, check the division, and return the answer."""
    mechanism = mechanism_by_name(name, mechanism_parameters(problem, entry))
    divided = to_divisible(problem, name, entry)
    started_s = time.perf_counter()
    division = mechanism.divide(divided.divisible, np.random.default_rng(seed))
    seconds = time.perf_counter() - started_s
    try:
        check_division(divided.divisible, division)
    except (InfeasibleAllocationError, ShapeMismatchError) as error:
        raise CliError(f"mechanism {name} broke a rule, please report it: {error}") from error
    return division_answer(name, divided, division, seconds=seconds, details=details)


def _solver_error(file: str, problem: Problem, name: str, error: SolverError) -> CliError:
    """Return the error for a solver that failed, usually at amounts of very different size."""
    spread = widest_extent(problem)
    if spread is None or spread.ratio < FAR_APART:
        return CliError(f"{_file_text(file)}: {name} found no answer, please report it: {error}")
    return BadInputError(
        f"{_file_text(file)}: {spread}, too far apart for {name}: {error}\n"
        "Use another unit, or leave out amounts that are too small to matter."
    )


def _choose_seed(problem: Problem, option: int | None) -> int:
    if option is not None and not 0 <= option <= MAX_SEED:
        raise BadInputError(f"--seed must be from 0 to {MAX_SEED}, found {option}")
    return option if option is not None else problem.seed or 0


def _read_problem_bytes(file: str) -> bytes:
    """Read a file or standard input, at most one byte beyond the limit."""
    try:
        if file == "-":
            return _read_limited_stream(sys.stdin.buffer)
        with Path(file).open("rb") as stream:
            return _read_limited_stream(stream)
    except IsADirectoryError as error:
        raise BadInputError(f"{file}: is a directory, not a problem file") from error
    except (OSError, ValueError) as error:  # ValueError: a name with a null character
        reason = getattr(error, "strerror", None) or str(error)
        raise BadInputError(f"{file}: cannot be read: {reason}") from error


def _read_limited_stream(stream: BinaryIO) -> bytes:
    return stream.read(MAX_BYTES + 1)


def _replace_parameters(problem: Problem, given: Mapping[str, object]) -> Problem:
    """Return the problem with its parameters replaced by those of the command line."""
    if "seed" in given:
        raise BadInputError("-p seed: give the seed with --seed")
    return dataclasses.replace(problem, parameters={**problem.parameters, **given})


def _place_text(place: str, given: Mapping[str, object]) -> str:
    """Return the field of an error in the file, or the option that replaced its value."""
    start, _, rest = place.partition("parameters.")
    name = re.split(r"[.\[]", rest, maxsplit=1)[0]
    return f"-p {rest}" if not start and name in given else place


def _faults_text(file: str, error: ProblemFileError, given: Mapping[str, object]) -> str:
    """Return the errors of a problem file, one on a line."""
    lines = [
        str(dataclasses.replace(fault, place=_place_text(fault.place, given)))
        for fault in error.faults
    ]
    if error.more:
        lines.append("... and further errors")
    if len(lines) == 1:
        return f"{_file_text(file)}: {lines[0]}"
    return "\n".join(
        [f"{_file_text(file)}: {len(error.faults)} errors", *(f"  {x}" for x in lines)]
    )


def _file_text(file: str) -> str:
    return "standard input" if file == "-" else file
