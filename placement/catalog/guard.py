"""Guards around plugins: a failure becomes one error that names the distribution."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np

from placement.errors import PlacementError, PluginFailedError
from placement.mechanisms.model import DivisibleProblem, Division, Mechanism
from placement.model.budget import Budget
from placement.model.snapshot import Allocation, LeftOut, Policy, Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginCode:
    """The distribution (package) that a plugin's code belongs to."""

    name: str  #: in the catalogue
    origin: str  #: the distribution, and the entry point
    package: str  #: the first part of its modules' names


class GuardedPolicy:
    """A plugin's policy; it raises only errors of this package."""

    def __init__(self, policy: Policy, plugin: PluginCode) -> None:
        self._policy = policy
        self._plugin = plugin

    def place(self, snapshot: Snapshot, rng: np.random.Generator, budget: Budget) -> Allocation:
        """Run the plugin's policy and check the types of its result.

        Raises
        ------
        PluginFailedError
            If it raised, or returned something that is no `Allocation`.
        """
        with _convert_plugin_errors(self._plugin, "place"):
            allocation = self._policy.place(snapshot, rng, budget)
            _check_type(allocation, Allocation, "the answer")
            _check_type(allocation.placed, np.ndarray, "placed")
            for each in allocation.left_out:
                _check_type(each, LeftOut, "each of left_out")
                _check_type(each.request, int, "request of a LeftOut")
                _check_type(each.count, int, "count of a LeftOut")
            json.dumps(dict(allocation.details))
        return allocation


class GuardedMechanism:
    """A mechanism of another distribution; see `GuardedPolicy`."""

    def __init__(self, mechanism: Mechanism, plugin: PluginCode) -> None:
        self._mechanism = mechanism
        self._plugin = plugin

    def divide(self, problem: DivisibleProblem, rng: np.random.Generator) -> Division:
        """Run the plugin's mechanism and check the types of its result.

        Raises
        ------
        PluginFailedError
            If it raised, or returned something that is no `Division`.
        """
        with _convert_plugin_errors(self._plugin, "divide"):
            division = self._mechanism.divide(problem, rng)
            _check_type(division, Division, "the answer")
            _check_type(division.tasks, np.ndarray, "tasks")
            json.dumps(dict(division.details))
        return division


def guarded_maker(
    make: Callable[[Mapping[str, Any]], Any], plugin: PluginCode
) -> Callable[..., Any]:
    """Wrap a plugin's maker so that its policies and mechanisms raise our errors only."""

    def make_guarded(given: Mapping[str, Any]) -> GuardedPolicy | GuardedMechanism:
        """Make a plugin's policy or mechanism of its parameters, and wrap it in a guard."""
        with _convert_plugin_errors(plugin, "make"):
            its = make(given)
            if hasattr(its, "divide"):
                return GuardedMechanism(its, plugin)
            if hasattr(its, "place"):
                return GuardedPolicy(its, plugin)
            raise TypeError(f"{type(its).__name__} has neither place nor divide")

    return make_guarded


@contextmanager
def _convert_plugin_errors(plugin: PluginCode, action: str) -> Iterator[None]:
    """Turn an exception of a plugin's code into `PluginFailedError`, but keep our own errors."""
    try:
        yield
    except (PlacementError, MemoryError):
        raise
    except (Exception, SystemExit) as error:  # other people's code: anything may happen
        cause = (
            f"{type(error).__name__}: {error}{_innermost_line(error.__traceback__, plugin.package)}"
        )
        raise PluginFailedError(plugin.name, plugin.origin, action, cause) from error


def _check_type(value: object, wanted: type, what: str) -> None:
    """Raise `TypeError` if a plugin's result is not of the wanted type."""
    if not isinstance(value, wanted):
        raise TypeError(f"{what} is of type {type(value).__name__}, not {wanted.__name__}")


def _innermost_line(trace: TracebackType | None, package: str) -> str:
    """Return the innermost line of a traceback in the plugin's own code, as text; "" if none."""
    place = ""
    while trace is not None:
        frame = trace.tb_frame
        if str(frame.f_globals.get("__name__")).partition(".")[0] == package:
            code = frame.f_code
            place = f" ({code.co_filename}, line {trace.tb_lineno}, in {code.co_name})"
        trace = trace.tb_next
    return place
