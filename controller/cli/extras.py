"""Packages that few commands need, and that are not installed with the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from typing import Final

from controller.terminal.errors import CliError

#: What the extra `simulation` of pyproject.toml installs.
SIMULATION: Final = ("matplotlib", "pyarrow")


class MissingExtraError(CliError):
    """A command needs packages that are not installed here."""

    def __init__(self, command: str, missing: Sequence[str], extra: str) -> None:
        super().__init__(
            f"{command} needs {' and '.join(missing)}: pip install 'fuga-controller[{extra}]', "
            f"or with the locked versions -r requirements/{extra}.lock"
        )
        self.missing = tuple(missing)


def need_simulation(command: str, find: Callable[[str], ModuleSpec | None] = find_spec) -> None:
    """Refuse a command that simulates where what it writes with is not installed."""
    missing = [name for name in SIMULATION if find(name) is None]
    if missing:
        raise MissingExtraError(command, missing, "simulation")
