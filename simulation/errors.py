"""Errors of the simulation package."""

from __future__ import annotations


class SimulationError(Exception):
    """A simulation that cannot run as requested."""


class InputError(SimulationError):
    """An invalid file or command-line value."""

    def __init__(self, where: str, problem: str) -> None:
        super().__init__(f"{where}: {problem}")
        self.where = where
        self.problem = problem
