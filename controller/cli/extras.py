"""Optional packages that few commands need."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from typing import Final

from controller.terminal.errors import CliError

#: What the extra `simulation` of pyproject.toml installs.
SIMULATION: Final = ("matplotlib", "pyarrow")


class MissingExtraError(CliError):
    """A command needs packages that are not installed."""

    def __init__(self, command: str, missing: Sequence[str], extra: str) -> None:
        super().__init__(
            f"{command} needs {' and '.join(missing)}: pip install 'fuga-controller[{extra}]', "
            f"or -r requirements/{extra}.lock for the locked versions"
        )
        self.missing = tuple(missing)


def need_simulation(command: str, find: Callable[[str], ModuleSpec | None] = find_spec) -> None:
    """Refuse to simulate without the packages that write results."""
    missing = [name for name in SIMULATION if find(name) is None]
    if missing:
        raise MissingExtraError(command, missing, "simulation")
