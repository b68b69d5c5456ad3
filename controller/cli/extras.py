"""Optional packages that few commands need."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from typing import Final

from controller.terminal.errors import CliError

#: What the extra `simulation` of pyproject.toml installs.
SIMULATION: Final = ("matplotlib", "pyarrow")
#: What the extra `host` installs, as it is imported and as it is installed.
HOST: Final = ("libvirt", "libvirt-python")


class MissingExtraError(CliError):
    """A command needs packages that are not installed."""

    def __init__(self, command: str, missing: Sequence[str], extra: str, lock: str) -> None:
        super().__init__(
            f"{command} needs {' and '.join(missing)}: pip install 'fuga-controller[{extra}]', "
            f"or -r requirements/{lock}.lock for the locked versions"
        )
        self.missing = tuple(missing)


def require_simulation_packages(
    command: str, find: Callable[[str], ModuleSpec | None] = find_spec
) -> None:
    """Raise `CliError` if the packages that write results are not installed."""
    missing = [name for name in SIMULATION if find(name) is None]
    if missing:
        raise MissingExtraError(command, missing, "simulation", "simulation")


def require_libvirt(command: str, find: Callable[[str], ModuleSpec | None] = find_spec) -> None:
    """Raise `CliError` if libvirt's Python binding is not installed.

    It is imported by child processes alone, which would die of that one after another.
    """
    module, package = HOST
    if find(module) is None:
        raise MissingExtraError(command, [package], "host", "runtime")
