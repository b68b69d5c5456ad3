"""What can be wrong with a simulation's input."""

from __future__ import annotations


class SimulationError(Exception):
    """A simulation that cannot run as it was asked for."""


class InputError(SimulationError):
    """A file, or a word of the command line, that says something impossible."""

    def __init__(self, where: str, problem: str) -> None:
        super().__init__(f"{where}: {problem}")
        self.where = where
        self.problem = problem
