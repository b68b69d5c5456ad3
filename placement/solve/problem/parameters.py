"""The ``parameters`` of a problem file: checked against the catalogue, names resolved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from placement.catalog.names import known_parameters
from placement.catalog.policies import POLICIES, CatalogEntry
from placement.errors import ParameterError
from placement.mechanisms import MECHANISMS, MechanismEntry
from placement.solve.problem.faults import (
    Place,
    ProblemFaults,
    describe_value,
    quote_text,
    suggest_names,
)
from placement.solve.problem.fields import MAX_COUNT, resolve_name
from placement.solve.problem.model import Problem
from placement.solve.problem.whole_vms import WholeVmProblem

_PLACE: Final[Place] = ("parameters",)


def policy_parameters(whole: WholeVmProblem, entry: CatalogEntry) -> dict[str, object]:
    """Return the parameters of a problem file as policies take them: hosts by index.

    One file serves several policies and mechanisms, so that a parameter of any
    of this package is checked for every policy, and one that does not read it passes it
    over.

    Raises
    ------
    ProblemError
        For a parameter that nothing reads, or a value that is not allowed.
    """
    faults = ProblemFaults()
    given = dict(whole.problem.parameters)
    if given.get("strategies") is not None:
        given["strategies"] = _read_strategies(given["strategies"], whole, faults)
    return _check_parameters(given, whole.problem.resources, entry, faults)


def mechanism_parameters(problem: Problem, entry: MechanismEntry) -> dict[str, object]:
    """Return the parameters of a problem file as mechanisms take them; see `policy_parameters`."""
    faults = ProblemFaults()
    given = dict(problem.parameters)
    # Policies check parameters that name hosts, and demands that only policies take.
    given.pop("strategies", None)
    return _check_parameters(given, problem.resources, entry, faults)


def _check_parameters(
    given: dict[str, object],
    resources: tuple[str, ...],
    entry: CatalogEntry | MechanismEntry,
    faults: ProblemFaults,
) -> dict[str, object]:
    """Check the parameters of a problem file by the readers of the catalogue."""
    if given.get("ranking") is not None:
        _check_ranking(given["ranking"], resources, faults)
    if given.get("resource") is not None:
        _check_resource(given["resource"], (*_PLACE, "resource"), resources, faults)
    faults.raise_if_any()
    known = known_parameters(entry) | {"seed"}
    readers: list[CatalogEntry | MechanismEntry] = [entry, *POLICIES.values(), *MECHANISMS.values()]
    for name, value in given.items():
        if name not in known:
            hint = suggest_names(name, sorted(known))
            faults.add((*_PLACE, name), f"no policy reads a parameter of that name{hint}")
            continue
        reader = next(each for each in readers if name in each.parameters)
        try:
            reader.make({name: value})
        except ParameterError as error:
            faults.add(
                (*_PLACE, name), f"must be {error.allowed}, found {describe_value(error.found)}"
            )
    faults.raise_if_any()
    return given


def _check_resource(
    name: object, place: Place, resources: tuple[str, ...], faults: ProblemFaults
) -> None:
    """Record a parameter that names an unknown resource as a fault."""
    if isinstance(name, str) and name not in resources:
        hint = suggest_names(name, resources)
        faults.add(place, f"no resource has the name {quote_text(name)}{hint}")


def _check_ranking(value: object, resources: tuple[str, ...], faults: ProblemFaults) -> None:
    """Record unknown resources in the parameter ``ranking`` as faults."""
    for position, name in enumerate(value if isinstance(value, list) else ()):
        _check_resource(name, (*_PLACE, "ranking", position), resources, faults)


def _read_strategies(
    value: object, whole: WholeVmProblem, faults: ProblemFaults
) -> Mapping[int, list[list[int]]]:
    """Read the parameter ``strategies``: ``{host: [[count per demand], ...]}``.

    The lists of a class of hosts hold for each of its hosts.
    """
    place = (*_PLACE, "strategies")
    if not isinstance(value, dict):
        faults.add(
            place, f"must be an object of host names and lists, found {describe_value(value)}"
        )
        return {}
    names = whole.host_indices()
    index = {name: number for number, name in enumerate(names)}
    chosen: dict[int, list[list[int]]] = {}
    for name, rows in value.items():
        at = (*place, name)
        known = resolve_name(name, index, "host", at, faults) is not None
        if not isinstance(rows, list) or not rows:
            faults.add(at, f"must be a list of combinations, found {describe_value(rows)}")
            continue
        read = [
            _read_combination(row, (*at, number), len(whole.problem.demands), faults)
            for number, row in enumerate(rows)
        ]
        for host in names[name] if known else ():
            if host in chosen:
                faults.add(at, "gives strategies to a host that has them already")
                break
            chosen[host] = read
    return chosen


def _read_combination(row: object, place: Place, demands: int, faults: ProblemFaults) -> list[int]:
    """Read one combination of given strategies: a count for each demand."""
    if not isinstance(row, list) or len(row) != demands:
        faults.add(
            place,
            f"must have {demands} counts, one per demand in file order,"
            f" found {describe_value(row)}",
        )
        return []
    for position, count in enumerate(row):
        if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= MAX_COUNT:
            faults.add(
                (*place, position),
                f"must be a whole number from 0 to {MAX_COUNT:,}, found {describe_value(count)}",
            )
    return row
