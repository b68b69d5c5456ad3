"""Every command of `fuga` and its module, imported only when the command runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import typer
from typer.core import TyperGroup

from controller.terminal.errors import BadInputError

if TYPE_CHECKING:
    # Typer's own copy of Click names the types of its commands.
    from typer._click import Command, Context


class _CommandEntry(NamedTuple):
    """The help panel and the module of a command."""

    panel: str
    location: str  #: ``module:attribute`` below this package; a function, or a `typer.Typer`


_ASK, _RUN, _SERVE = "VMs", "This machine", "Single processes"
_LOOK, _MANAGE = "Decisions", "Operators"

#: In the order of the help: single commands first, then groups of them.
COMMAND_ENTRIES: Final[Mapping[str, _CommandEntry]] = MappingProxyType(
    {
        "request": _CommandEntry(_ASK, "vms.requests:request"),
        "requests": _CommandEntry(_ASK, "vms.requests:requests"),
        "vms": _CommandEntry(_ASK, "vms.requests:vms"),
        "counts": _CommandEntry(_ASK, "vms.counts:counts"),
        "usage": _CommandEntry(_ASK, "vms.usage:app"),
        "reserve": _CommandEntry(_ASK, "vms.reservations:reserve"),
        "reservations": _CommandEntry(_ASK, "vms.reservations:reservations"),
        "vm-groups": _CommandEntry(_ASK, "vms.vm_groups:vm_groups"),
        "scale": _CommandEntry(_ASK, "vms.changes:scale"),
        "label": _CommandEntry(_ASK, "vms.changes:label"),
        "extend": _CommandEntry(_ASK, "vms.changes:extend"),
        "stop": _CommandEntry(_ASK, "vms.power:stop"),
        "start": _CommandEntry(_ASK, "vms.power:start"),
        "reboot": _CommandEntry(_ASK, "vms.power:reboot"),
        "rm": _CommandEntry(_ASK, "vms.requests:rm"),
        "explain": _CommandEntry(_ASK, "vms.explain:explain"),
        "capacity": _CommandEntry(_ASK, "vms.capacity:capacity"),
        "console": _CommandEntry(_ASK, "vms.consoles:console"),
        "replay": _CommandEntry(_LOOK, "operating.rounds:replay"),
        "verify": _CommandEntry(_LOOK, "operating.verify:verify"),
        "shadow": _CommandEntry(_LOOK, "operating.shadow:shadow"),
        "events": _CommandEntry(_LOOK, "operating.events:events"),
        "status": _CommandEntry(_LOOK, "operating.status:status"),
        "solve": _CommandEntry(_LOOK, "problems.solve:solve_command"),
        "simulate": _CommandEntry(_LOOK, "simulations.simulate:simulate_command"),
        "reproduce": _CommandEntry(_LOOK, "simulations.reproduce:reproduce_command"),
        "pause": _CommandEntry(_MANAGE, "operating.pause:pause"),
        "resume": _CommandEntry(_MANAGE, "operating.pause:resume"),
        "audit": _CommandEntry(_MANAGE, "operating.audit:audit"),
        "doctor": _CommandEntry(_MANAGE, "doctor.doctor:doctor"),
        "wait-ready": _CommandEntry(_MANAGE, "operating.wait_ready:wait_ready"),
        "up": _CommandEntry(_RUN, "operating.processes:up"),
        "down": _CommandEntry(_RUN, "operating.processes:down"),
        "env": _CommandEntry(_RUN, "operating.env:env"),
        "login": _CommandEntry(_RUN, "operating.login:login"),
        "logout": _CommandEntry(_RUN, "operating.login:logout"),
        "api": _CommandEntry(_SERVE, "operating.processes:api"),
        "control": _CommandEntry(_SERVE, "operating.processes:control"),
        "monitor": _CommandEntry(_SERVE, "operating.processes:monitor"),
        "worker": _CommandEntry(_SERVE, "operating.processes:worker"),
        "simulation-worker": _CommandEntry(_SERVE, "operating.processes:simulation_worker"),
        "reservation": _CommandEntry(_ASK, "vms.reservations:app"),
        "volume": _CommandEntry(_ASK, "vms.volumes:app"),
        "key": _CommandEntry(_ASK, "vms.keys:app"),
        "network": _CommandEntry(_MANAGE, "site.networks:app"),
        "rounds": _CommandEntry(_LOOK, "operating.rounds:app"),
        "host": _CommandEntry(_MANAGE, "site.hosts:app"),
        "move": _CommandEntry(_MANAGE, "moving.moves:app"),
        "plan": _CommandEntry(_MANAGE, "moving.plans:app"),
        "roll": _CommandEntry(_MANAGE, "moving.rolls:app"),
        "what-if": _CommandEntry(_MANAGE, "simulations.what_if:app"),
        "resource": _CommandEntry(_MANAGE, "site.resources:app"),
        "type": _CommandEntry(_MANAGE, "site.vm_types:types"),
        "image": _CommandEntry(_MANAGE, "site.images:app"),
        "tenant": _CommandEntry(_MANAGE, "site.tenants:app"),
        "budget": _CommandEntry(_MANAGE, "site.budgets:app"),
        "price": _CommandEntry(_MANAGE, "site.prices:app"),
        "quota": _CommandEntry(_MANAGE, "site.quotas:app"),
        "token": _CommandEntry(_MANAGE, "site.tokens:app"),
        "db": _CommandEntry(_SERVE, "operating.database:db"),
    }
)


class Commands(TyperGroup):
    """The group of all commands. Running one imports only its own module."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        # Typer only looks them up, and suggests the names next to an unknown one.
        self.commands = cast("MutableMapping[str, Command]", _LazyCommands())

    def list_commands(self, ctx: Context) -> list[str]:
        """Return the names of commands without importing their modules."""
        return list(self.commands)


class _LazyCommands(Mapping[str, "Command"]):
    """Commands by name, each made at its first use."""

    def __init__(self) -> None:
        self._loaded: dict[str, Command] = {}

    def __getitem__(self, name: str) -> Command:
        if name not in self._loaded:
            self._loaded[name] = _load_command(name, COMMAND_ENTRIES[name])
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(COMMAND_ENTRIES)

    def __len__(self) -> int:
        return len(COMMAND_ENTRIES)


def _load_command(name: str, entry: _CommandEntry) -> Command:
    """Import the module of a command of `fuga` and return the command, with its help panel."""
    module, _, attribute = entry.location.partition(":")
    found = getattr(import_module(f"controller.cli.{module}"), attribute)
    command: Command
    if isinstance(found, typer.Typer):
        command = typer.main.get_group(found)
    else:
        alone = typer.Typer(add_completion=False)
        alone.command(name)(found)
        command = typer.main.get_command(alone)
    command.rich_help_panel = entry.panel  # type: ignore[attr-defined]  # both kinds of Typer's have it
    _refuse_non_finite(command)
    return command


def _refuse_non_finite(command: Command) -> None:
    """Make every option of a command or group refuse ``nan`` and ``inf``."""
    for each in getattr(command, "commands", {}).values():
        _refuse_non_finite(each)
    invoke: Callable[[Context], object] = command.invoke

    def check_value(ctx: Context) -> object:
        for each in command.params:
            value = ctx.params.get(each.name or "")
            for part in value if isinstance(value, list | tuple) else (value,):
                if isinstance(part, float) and not math.isfinite(part):
                    name = max(each.opts, key=len)
                    raise BadInputError(f"{name} is {part}: give a finite number, such as 1.5")
        return invoke(ctx)

    command.invoke = check_value  # type: ignore[method-assign]  # Typer has no hook after parsing
