"""The session of a command: its API client, its common options and its output."""

from __future__ import annotations

import functools
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, Final, ParamSpec

import typer

from controller.client.errors import ApiProblemError
from controller.session.credentials import find_connection
from controller.terminal.columns import Column
from controller.terminal.errors import BadInputError, command_error
from controller.terminal.output import OutputFormat, echo, print_json, print_records_as, print_table
from controller.terminal.watch import watch

if TYPE_CHECKING:
    from controller.client.connection import ApiConnection
    from controller.client.http import Client


#: Parameters of commands by the field of the API that they set, if the names differ.
_PARAMETERS: Final[Mapping[str, Sequence[str]]] = MappingProxyType(
    {
        "default": ("source",),
        "for_s": ("length",),
        "format": ("image_format",),
        "host": ("to",),
        "hosts": ("host",),
        "is_group": ("group",),
        "labels": ("label", "changes"),
        "limit": ("last",),
        "limits": ("amounts",),
        "min_memory_mib": ("min_memory",),
        "offered_to": ("offer_to",),
        "only_cold": ("cold",),
        "over_quota": ("over",),
        "overhead_per_vm": ("overhead",),
        "overrides": ("override",),
        "parent": ("to",),
        "public_key": ("file",),
        "ratios": ("ratio",),
        "request_id": ("request",),
        "resources": ("amounts",),
        "rules.affinity": ("affinity",),
        "rules.anti_affinity": ("anti_affinity",),
        "rules.forbids": ("forbid",),
        "rules.prefers": ("prefer",),
        "rules.spread": ("spread",),
        "rules.zone": ("zone",),
        "seed_kind": ("seed",),
        "size_gib": ("size",),
        "ssh_host_keys": ("ssh_host_key",),
        "ssh_keys": ("ssh_key",),
        "starts_at": ("start",),
        "subnet.cidr": ("cidr",),
        "subnet.dns": ("dns",),
        "subnet.excluded": ("exclude",),
        "subnet.gateway": ("gateway",),
        "timeout_s": ("timeout",),
        "ttl_s": ("ttl", "expires"),
        "url": ("origin",),
    }
)
#: Fields whose members have names chosen by callers; errors name the member.
_OF_NAMES: Final = frozenset({"labels", "limits", "overrides", "ratios", "reserved", "resources"})
_LAST: Final = re.compile(r"(\.[^.\[]+|\[\d+\])$")


def option_of_field(command: Any, field: str) -> str:
    """Return the option or argument that sets a field of the API, or else the field's name."""
    given = {each.name: each for each in command.params}
    place = field
    while place:
        for name in (place, *_PARAMETERS.get(place, ())):
            if name in given:
                rest = field.removeprefix(place).removeprefix(".").partition("[")[0]
                which = f" ({rest})" if place in _OF_NAMES and rest else ""
                return _option_name(given[name]) + which
        shorter = _LAST.sub("", place)
        place = shorter if shorter != place else ""
    return field


def _option_name(parameter: Any) -> str:
    """Return an argument's name in capitals, or an option's long name."""
    if parameter.param_type_name == "argument":
        return str(parameter.metavar or parameter.name).upper().rstrip(".")
    return str(next((each for each in parameter.opts if each.startswith("--")), parameter.opts[0]))


P = ParamSpec("P")

OutputOption = Annotated[
    OutputFormat | None,
    typer.Option(
        "-o",
        "--output",
        help="table or wide; for programs: json, yaml, csv or name",
        metavar="FORMAT",
    ),
]
AsOption = Annotated[
    str | None, typer.Option("--as", metavar="TENANT", help="Use this tenant's token")
]
UrlOption = Annotated[
    str | None, typer.Option("--url", metavar="URL", help="API address (default: FUGA_URL)")
]
SearchOption = Annotated[
    str | None, typer.Option(metavar="TEXT", help="Show only items with this in their name")
]

WatchOption = Annotated[
    bool, typer.Option("--watch", "-w", help="Refresh every two seconds until Ctrl-C")
]


@dataclass(frozen=True, slots=True)
class CommonOptions:
    """The options of every command: they may stand before or after its name."""

    output: OutputFormat | None = None
    tenant: str | None = None
    url: str | None = None

    def with_defaults(self, other: CommonOptions) -> CommonOptions:
        """Return these options, with those of ``other`` where these are unset."""
        return CommonOptions(
            self.output or other.output, self.tenant or other.tenant, self.url or other.url
        )


class Session:
    """One run of a command: the API client, created when first needed, and the output."""

    def __init__(
        self, common: CommonOptions, environ: Mapping[str, str], *, before_another: bool = False
    ) -> None:
        self.before_another = before_another  #: whether a subcommand follows this command
        output = common.output or OutputFormat.TABLE
        self.json = output.is_machine_readable  #: print records instead of sentences
        print_records_as(output)
        self._common = common
        self._environ = environ
        self._api: Client | None = None

    @property
    def api(self) -> Client:
        """The client of the API, created at its first use."""
        if self._api is None:
            # A third of httpx's import time is its command line, which is not needed.
            sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]  # no such module
            from controller.client.http import Client  # noqa: PLC0415

            self._api = Client(self.connection, agent="fuga-cli")
        return self._api

    @property
    def connection(self) -> ApiConnection:
        """The API's address and token, by options, environment and files."""
        return find_connection(self._environ, url=self._common.url, tenant=self._common.tenant)

    def show(
        self, rows: Iterable[Mapping[str, Any]], columns: Sequence[Column], *, empty: str
    ) -> None:
        """Print a list as a table, or as records for programs."""
        if self.json:
            print_json(list(rows))
        else:
            print_table(columns, rows, empty=empty)

    def print_message(self, message: str) -> None:
        """Print a message for people; nothing for programs."""
        if not self.json:
            echo(message)

    def print_note(self, message: str) -> None:
        """Print a note of one or more lines on standard error."""
        for line in message.splitlines():
            echo(line, err=True)

    def answer(self, value: Any, *lines: str) -> None:
        """Print the result: the record for programs, a sentence or several for people."""
        if self.json:
            print_json(value)
            return
        for line in lines:
            echo(line)

    def close(self) -> None:
        """Close the API's client."""
        if self._api is not None:
            self._api.close()


def pass_session(command: Callable[Concatenate[Session, P], None]) -> Callable[..., None]:
    """Decorate a command: pass a `Session`, and add the options -o, --as and --url."""
    return _add_options(command, watchable=False)


def list_command(command: Callable[Concatenate[Session, P], None]) -> Callable[..., None]:
    """Decorate a command that lists: pass a `Session`; add the common options and --watch."""
    return _add_options(command, watchable=True)


def _add_options(
    command: Callable[Concatenate[Session, P], None], *, watchable: bool
) -> Callable[..., None]:
    """Return the command with the common options, and with a session as its first argument."""
    inner = inspect.signature(command, eval_str=True)
    parameters = list(inner.parameters.values())[1:]
    parameters = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters]
    options: list[tuple[str, Any, Any]] = [
        ("output", OutputOption, None),
        ("as_tenant", AsOption, None),
        ("url", UrlOption, None),
    ]
    if watchable:
        options.insert(0, ("watched", WatchOption, False))
    parameters += [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
        )
        for name, annotation, default in options
    ]
    parameters.append(
        inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    )

    @functools.wraps(command)
    def run(**given: Any) -> None:
        context: typer.Context = given.pop("ctx")
        here = CommonOptions(given.pop("output"), given.pop("as_tenant"), given.pop("url"))
        before = context.obj if isinstance(context.obj, CommonOptions) else CommonOptions()
        context.obj = here.with_defaults(before)
        follows = context.invoked_subcommand is not None
        watched = given.pop("watched", False)
        session = Session(context.obj, os.environ, before_another=follows)
        try:
            if watched and not follows:
                _watch_list(session, lambda: command(session, **given))  # type: ignore[call-arg]  # as below
            else:
                command(session, **given)  # type: ignore[call-arg]  # Typer fills them by name
        except ApiProblemError as error:
            raise command_error(
                error, functools.partial(option_of_field, context.command)
            ) from error
        finally:
            session.close()

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    del run.__wrapped__  # Typer would read its hints instead
    return run


def _watch_list(session: Session, show: Callable[[], None]) -> None:
    if session.json:
        raise BadInputError("--watch cannot be used with -o")

    watch(show)
