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


class _Place(NamedTuple):
    """The help panel and the module of a command."""

    panel: str
    written: str  #: ``module:attribute`` below this package; a function, or a `typer.Typer`


_ASK, _RUN, _SERVE = "VMs", "This machine", "Single processes"
_LOOK, _MANAGE = "Decisions", "Operators"

#: In the order of the help: single commands first, then groups of them.
PLACES: Final[Mapping[str, _Place]] = MappingProxyType(
    {
        "request": _Place(_ASK, "vms.requests:request"),
        "requests": _Place(_ASK, "vms.requests:requests"),
        "vms": _Place(_ASK, "vms.requests:vms"),
        "counts": _Place(_ASK, "vms.counts:counts"),
        "reserve": _Place(_ASK, "vms.reservations:reserve"),
        "reservations": _Place(_ASK, "vms.reservations:reservations"),
        "vm-groups": _Place(_ASK, "vms.vm_groups:vm_groups"),
        "scale": _Place(_ASK, "vms.changes:scale"),
        "label": _Place(_ASK, "vms.changes:label"),
        "extend": _Place(_ASK, "vms.changes:extend"),
        "stop": _Place(_ASK, "vms.power:stop"),
        "start": _Place(_ASK, "vms.power:start"),
        "reboot": _Place(_ASK, "vms.power:reboot"),
        "rm": _Place(_ASK, "vms.requests:rm"),
        "explain": _Place(_ASK, "vms.explain:explain"),
        "capacity": _Place(_ASK, "vms.capacity:capacity"),
        "console": _Place(_ASK, "vms.consoles:console"),
        "replay": _Place(_LOOK, "operating.rounds:replay"),
        "verify": _Place(_LOOK, "operating.verify:verify"),
        "shadow": _Place(_LOOK, "operating.shadow:shadow"),
        "events": _Place(_LOOK, "operating.events:events"),
        "status": _Place(_LOOK, "operating.status:status"),
        "solve": _Place(_LOOK, "problems.solve:solve_command"),
        "simulate": _Place(_LOOK, "simulations.simulate:simulate_command"),
        "reproduce": _Place(_LOOK, "simulations.reproduce:reproduce_command"),
        "pause": _Place(_MANAGE, "operating.pause:pause"),
        "resume": _Place(_MANAGE, "operating.pause:resume"),
        "audit": _Place(_MANAGE, "operating.audit:audit"),
        "doctor": _Place(_MANAGE, "operating.doctor:doctor"),
        "wait-ready": _Place(_MANAGE, "operating.wait_ready:wait_ready"),
        "up": _Place(_RUN, "operating.processes:up"),
        "down": _Place(_RUN, "operating.processes:down"),
        "env": _Place(_RUN, "operating.env:env"),
        "login": _Place(_RUN, "operating.login:login"),
        "logout": _Place(_RUN, "operating.login:logout"),
        "api": _Place(_SERVE, "operating.processes:api"),
        "control": _Place(_SERVE, "operating.processes:control"),
        "monitor": _Place(_SERVE, "operating.processes:monitor"),
        "worker": _Place(_SERVE, "operating.processes:worker"),
        "simulation-worker": _Place(_SERVE, "operating.processes:simulation_worker"),
        "reservation": _Place(_ASK, "vms.reservations:app"),
        "key": _Place(_ASK, "vms.keys:app"),
        "network": _Place(_MANAGE, "site.networks:app"),
        "rounds": _Place(_LOOK, "operating.rounds:app"),
        "host": _Place(_MANAGE, "site.hosts:app"),
        "move": _Place(_MANAGE, "moving.moves:app"),
        "plan": _Place(_MANAGE, "moving.plans:app"),
        "roll": _Place(_MANAGE, "moving.rolls:app"),
        "what-if": _Place(_MANAGE, "simulations.what_if:app"),
        "resource": _Place(_MANAGE, "site.resources:app"),
        "type": _Place(_MANAGE, "site.catalogue:types"),
        "image": _Place(_MANAGE, "site.images:app"),
        "tenant": _Place(_MANAGE, "site.tenants:app"),
        "quota": _Place(_MANAGE, "site.quotas:app"),
        "token": _Place(_MANAGE, "site.tokens:app"),
        "db": _Place(_SERVE, "operating.processes:db"),
    }
)


class Commands(TyperGroup):
    """The group of all commands. Running one imports only its own module."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        # Typer only looks them up, and suggests the names next to an unknown one.
        self.commands = cast("MutableMapping[str, Command]", _Imported())

    def list_commands(self, ctx: Context) -> list[str]:
        """Return the names alone, so that completion imports what it offers and no more."""
        return list(self.commands)


class _Imported(Mapping[str, "Command"]):
    """Commands by name, each made at its first use."""

    def __init__(self) -> None:
        self._made: dict[str, Command] = {}

    def __getitem__(self, name: str) -> Command:
        if name not in self._made:
            self._made[name] = _made(name, PLACES[name])
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(PLACES)

    def __len__(self) -> int:
        return len(PLACES)


def _made(name: str, place: _Place) -> Command:
    module, _, attribute = place.written.partition(":")
    found = getattr(import_module(f"controller.cli.{module}"), attribute)
    command: Command
    if isinstance(found, typer.Typer):
        command = typer.main.get_group(found)
    else:
        alone = typer.Typer(add_completion=False)
        alone.command(name)(found)
        command = typer.main.get_command(alone)
    command.rich_help_panel = place.panel  # type: ignore[attr-defined]  # both kinds of Typer's have it
    _take_finite_numbers(command)
    return command


def _take_finite_numbers(command: Command) -> None:
    """Refuse ``nan`` and ``inf``, which are no amounts, in every option of a command or group."""
    for each in getattr(command, "commands", {}).values():
        _take_finite_numbers(each)
    invoke: Callable[[Context], object] = command.invoke

    def checked(ctx: Context) -> object:
        for each in command.params:
            value = ctx.params.get(each.name or "")
            for part in value if isinstance(value, list | tuple) else (value,):
                if isinstance(part, float) and not math.isfinite(part):
                    name = max(each.opts, key=len)
                    raise BadInputError(f"{name} is {part}: give a finite number, such as 1.5")
        return invoke(ctx)

    command.invoke = checked  # type: ignore[method-assign]  # Typer has no hook after parsing
