"""The budget of a policy in one round, in units of work."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Budget:
    """Units of work that a policy may spend.

    Work is counted (for `fuga` in combinations evaluated) and never timed, so
    that a replay is cut where the round was cut.

    Parameters
    ----------
    units : int or None
        How many; None for as many as it takes.
    """

    units: int | None = None
    spent: int = 0
    refused: int = 0  #: number of requests that exceeded what was left

    def spend(self, units: int) -> bool:
        """Take units of work from the budget; return False, and take none, if fewer are left."""
        if self.units is not None and self.spent + units > self.units:
            self.refused += 1
            return False
        self.spent += units
        return True

    @property
    def left(self) -> int | None:
        """Units of work that remain; None if unlimited."""
        return None if self.units is None else self.units - self.spent
