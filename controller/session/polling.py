"""`--wait`: polls the API until a goal is reached, shows progress, and explains failures."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol

from controller.client.errors import ApiProblemError, ApiUnreachableError
from controller.session.host_texts import health_text
from controller.terminal.errors import CliError, WaitExpiredError
from controller.terminal.name_lists import first_names
from controller.terminal.output import echo, text
from plain_text import plain

if TYPE_CHECKING:
    from controller.client.http import Client, Json
    from controller.session.name_lookup import LookupTarget

_POLL_EVERY_S = 0.5
_LOOKED_AT: Final = 20  #: unfinished targets that one look of a wait reads, or an error names
_ENDED: Final = ("released", "cancelled", "expired")


class ProgressLine(Protocol):
    """A function that shows progress in one changing line."""

    def __call__(self, line: str) -> None:
        """Replace the line of progress."""
        ...


@contextmanager
def progress(*, quiet: bool = False) -> Iterator[ProgressLine]:
    """Show a live line on a terminal, else one line per change, on standard error."""
    if quiet:
        yield lambda _line: None
    elif sys.stderr.isatty():
        from rich.console import Console  # noqa: PLC0415
        from rich.markup import escape  # noqa: PLC0415

        with Console(stderr=True).status("…") as status:
            yield lambda line: status.update(escape(line))
    else:
        say = change_printer()
        yield lambda line: say(line, line)


def change_printer() -> Callable[[object, str], None]:
    """Return a function that prints a line on standard error if its key has changed."""
    last: list[object] = []

    def print_if_changed(key: object, line: str) -> None:
        if last != [key]:
            last[:] = [key]
            echo(line, err=True)

    return print_if_changed


def poll_attempts(
    timeout_s: float, retry: Callable[[], None] | None = None
) -> Iterator[AbstractContextManager[None]]:
    """Yield a context for each attempt, half a second apart; call ``retry`` after a failed one.

    Raises
    ------
    ApiUnreachableError
        After ``timeout_s``, if the API did not answer the last attempt.
    """
    trouble: list[ApiUnreachableError] = []

    @contextmanager
    def attempt() -> Iterator[None]:
        trouble.clear()
        try:
            yield
        except ApiUnreachableError as error:
            trouble.append(error)
            if retry is not None:
                retry()

    end = time.monotonic() + timeout_s
    while True:
        yield attempt()
        now = time.monotonic()
        if now >= end:
            if trouble:
                raise trouble[-1]
            return
        time.sleep(min(_POLL_EVERY_S, end - now))


def wait_until_running(
    api: Client, request: Json, *, timeout_s: float, quiet: bool = False
) -> Json:
    """Poll a request until all its VMs run.

    Raises
    ------
    WaitExpiredError
        After ``timeout_s``, with the reasons.
    CliError
        If the request ends before: deleted, cancelled, expired.
    """
    seen = request
    with progress(quiet=quiet) as show:
        for look in poll_attempts(timeout_s, lambda: show("the API does not answer; retrying")):
            with look:
                seen = api.get(f"requests/{request['id']}")
                if seen["state"] in _ENDED:
                    raise CliError(
                        f"request {seen['name']} is {seen['state']}; nothing to wait for"
                    )
                if seen["vms_running"] >= seen["count"]:
                    return seen
                show(_progress_text(seen))
    raise WaitExpiredError(
        "\n".join(
            [
                f"request {seen['name']}: {seen['vms_running']} of {seen['count']} VMs run "
                f"after {timeout_s:g} s",
                *waiting_reasons(api, seen),
                "The request stays: `fuga requests` shows it, "
                f"`fuga explain {seen['name']}` explains, `fuga rm {seen['name']}` deletes it.",
            ]
        )
    )


def wait_until_gone(
    api: Client, targets: Sequence[LookupTarget], *, timeout_s: float, quiet: bool = False
) -> list[Json]:
    """Poll until no VM of the targets is left on a host.

    A look ends at the first `_LOOKED_AT` targets that are still there: its calls stay few.
    """
    left = list(targets)
    gone: dict[str, Json] = {}
    with progress(quiet=quiet) as show:
        for look in poll_attempts(timeout_s):
            with look:
                there: list[LookupTarget] = []
                for target in left:
                    if len(there) == _LOOKED_AT:
                        break
                    record = api.get(target.path)
                    if _is_gone(target, record):
                        gone[target.path] = record
                    else:
                        there.append(target)
                left = [target for target in left if target.path not in gone]
                if not left:
                    return [gone[target.path] for target in targets]
                unseen = "at most " if len(left) > len(there) else ""
                show(f"{unseen}{len(left)} of {len(targets)} still being removed")
    names = first_names([str(target) for target in left], _LOOKED_AT)
    raise WaitExpiredError(
        f"after {timeout_s:g} s still being removed: {names}\n"
        "`fuga vms` shows the remaining VMs and errors, `fuga host list` the state of hosts."
    )


def wait_until_switched(
    api: Client, targets: Sequence[LookupTarget], *, timeout_s: float, quiet: bool = False
) -> list[Json]:
    """Poll until the power changes of these VMs are done; raise if one is off and should run.

    A look ends at the first targets with `_LOOKED_AT` VMs to go: its calls stay few.
    """
    left = list(targets)
    done: dict[str, Json] = {}
    busy: list[Json] = []
    off: dict[str, Json] = {}
    with progress(quiet=quiet) as show:
        for look in poll_attempts(timeout_s):
            with look:
                busy = []
                for target in left:
                    if len(busy) >= _LOOKED_AT:
                        break
                    vms = list(_vms_of_target(api, target))
                    if changing := [vm for vm in vms if vm["power"]]:
                        busy += changing
                    else:
                        off |= {vm["id"]: vm for vm in vms if _is_off_unwanted(vm)}
                        done[target.path] = vms[0] if target.kind == "vm" else api.get(target.path)
                left = [target for target in left if target.path not in done]
                if not left:
                    _check_started(off.values())
                    return [done[target.path] for target in targets]
                more = "" if len(busy) < _LOOKED_AT else " or more"
                show(f"{len(busy)}{more} VMs to go, {busy[0]['name']}: {power_text(busy[0])}")
    lines = "".join(f"  {vm['name']}: {power_text(vm)}\n" for vm in busy[:_LOOKED_AT])
    raise WaitExpiredError(
        f"after {timeout_s:g} s not done:\n{lines}The change continues: `fuga vms` shows it."
    )


def _is_off_unwanted(vm: Json) -> bool:
    """Return whether a VM is off although its tenant wants it to run."""
    return bool(vm["observed"] == "stopped" and vm["desired"] == "running")


def _check_started(off: Collection[Json]) -> None:
    """Raise `CliError` if there are VMs that are off after a start."""
    if off:
        lines = [plain(f"  {vm['name']}: {vm['last_error'] or 'it went off again'}") for vm in off]
        more = f"\n  and {len(lines) - _LOOKED_AT} more" if len(lines) > _LOOKED_AT else ""
        raise CliError("off, though they should run:\n" + "\n".join(lines[:_LOOKED_AT]) + more)


def power_text(vm: Mapping[str, Any]) -> str:
    """Return the power change of a VM that is under way, and the reason of a delay, as text."""
    power = vm["power"]
    state = str(power["state"]).replace("_", " ")
    why = power["waits_for"] or power["last_error"]
    return f"{state}, {why}" if why else state


def _vms_of_target(api: Client, target: LookupTarget) -> Iterator[Json]:
    if target.kind == "vm":
        yield api.get(target.path)
    else:
        yield from api.items("vms", request=target.record["id"])


def wait_for_host(api: Client, host: Json, *, timeout_s: float, quiet: bool = False) -> Json:
    """Poll a new host until the monitor has reached it and it is `up`."""
    seen = host
    with progress(quiet=quiet) as show:
        for look in poll_attempts(timeout_s):
            with look:
                seen = api.get(f"hosts/{host['name']}")
                if seen.get("same_machine_as"):
                    raise CliError(plain(f"{seen['last_error']}"))
                if seen["health"] == "up":
                    return seen
                error = text(seen["last_error"])
                show(f"host {seen['name']}: {health_text(seen)}, last error: {error}")
    raise WaitExpiredError(
        f"host {seen['name']} is {health_text(seen)} after {timeout_s:g} s, "
        f"last error: {plain(seen['last_error'] or 'none; check that the monitor runs')}\n"
        "It stays registered and the monitor keeps trying; `fuga host remove` retires it."
    )


def waiting_reasons(api: Client, request: Mapping[str, Any]) -> list[str]:
    """Return the reasons why VMs of a request do not run, a line each."""
    lines = []
    waiting = request.get("waiting")
    if waiting:
        lines.append(f"  {waiting['count']} wait: {waiting['reason']}")
    try:
        message = (api.get(f"requests/{request['id']}/explanation").get("waiting") or {}).get(
            "message"
        )
        if message:
            lines.append(f"  {message}")
        for vm in api.items("vms", request=request["id"]):
            if vm["observed"] != "running" and (vm["host"] or vm["last_error"]):
                where = f" on {vm['host']}" if vm["host"] else ""
                why = f": {vm['last_error']}" if vm["last_error"] else ""
                state = vm.get("assignment_state") or "waiting"
                lines.append(f"  {vm['name']}{where}: {state}{why}")
    except (ApiUnreachableError, ApiProblemError) as error:
        lines.append(f"  reasons are not available: {error}")
    if not lines:
        lines.append("  no slot has decided it yet; check that the control centre runs")
    return lines


def _progress_text(request: Mapping[str, Any]) -> str:
    """Return how many VMs of a request run, are placed and wait."""
    line = (
        f"{request['name']}: {request['vms_running']} of {request['count']} run, "
        f"{request['vms_placed']} placed"
    )
    if request.get("vms_unknown"):
        line += f", {request['vms_unknown']} on hosts that do not answer"
    if request.get("vms_leaving"):
        line += f", {request['vms_leaving']} being removed"
    waiting = request.get("waiting")
    return f"{line}, {waiting['count']} wait: {waiting['reason']}" if waiting else line


def _is_gone(target: LookupTarget, record: Mapping[str, Any]) -> bool:
    if target.kind == "request":
        return record["state"] in _ENDED
    return record["observed"] == "absent" and record["host"] is None
