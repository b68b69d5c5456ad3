"""`fuga simulate --from-registry`: a time of the live system as what is simulated."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import typer

from controller.cli.changes import parse_ttl
from controller.cli.doctor import load_settings
from controller.cli.errors import BadInputError
from controller.cli.simulating import Asked
from registry import Registry
from simulation import InputError, Recording, read_recording, record

_FOLDER: Final = "registry"
_SINCE: Final = "7d"


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Which time of the register center, as it was typed."""

    since: str | None
    until: str | None
    anonymous: bool

    def times(self, now: datetime) -> tuple[datetime, datetime]:
        """Return its beginning and end; the latter is not after ``now``."""
        since = _time(self.since or _SINCE, "--since", now)
        until = now if self.until is None else min(now, _time(self.until, "--until", now))
        if since >= until:
            raise BadInputError(
                f"--since is {since.isoformat()}, which is not before {until.isoformat()}, the end"
            )
        return since, until


def save(window: Window, folder: Path) -> None:
    """Write a recording to a folder of its own, and tell how to simulate it."""
    if folder.exists():
        raise BadInputError(f"--save-trace {folder}: it is there already")
    found = _record(window, folder)
    typer.echo(_told(found))
    typer.echo(
        f"fuga simulate {found.trace} --hosts {found.hosts} --weights {found.weights}"
        f" --until {found.length_s:g}"
    )


def on_registry(asked: Asked, window: Window, *, out: Path, resume: bool) -> Asked:
    """Return what is asked for on a recording of the register center, which DIR keeps.

    A study that goes on does so on the recording that it began with.
    """
    stray = [word for word in asked.sweep if "=" not in word]
    if stray:
        raise BadInputError(f"{stray[0]}: with --from-registry there is no TRACE")
    if asked.types is not None or asked.trace_format is not None:
        raise BadInputError("--types and --format say how a TRACE is read, not --from-registry")
    folder = out / _FOLDER
    if resume and folder.is_dir():
        try:
            found = read_recording(folder)
        except InputError as error:
            raise BadInputError(str(error)) from error
    else:
        if (out / "runs").exists():
            raise BadInputError(f"{out} has a simulation: name another --out, or --resume it")
        found = _record(window, folder)
    typer.echo(_told(found), err=True)
    return replace(
        asked,
        trace=found.trace,
        hosts=asked.hosts or found.hosts,
        weights=asked.weights or found.weights,
        until_s=None if asked.drain else found.length_s,
    )


def _record(window: Window, folder: Path) -> Recording:
    registry = Registry.connect(load_settings().resolved_database_url())
    try:
        since, until = window.times(registry.now())
        with registry.history.between(since, until) as past:
            found = record(past, folder, anonymous=window.anonymous)
    finally:
        registry.close()
    if not found.vms_running + found.vms_waiting + found.vms_asked:
        shutil.rmtree(folder)
        raise BadInputError(f"nothing was asked for from {found.since} to {found.until}")
    return found


def _told(found: Recording) -> str:
    return (
        f"{found.since} to {found.until}: {found.hosts_there} hosts, {found.vms_running} VMs"
        f" that ran already, {found.vms_waiting} that waited, {found.vms_asked} asked for"
        f" since; in {found.folder}"
    )


def _time(told: str, option: str, now: datetime) -> datetime:
    """Return a time that is so long ago, or one of ISO 8601; without a zone it is UTC."""
    try:
        at = datetime.fromisoformat(told)
    except ValueError:
        pass
    else:
        return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    try:
        return now - timedelta(seconds=parse_ttl(told, option))
    except BadInputError:
        raise BadInputError(
            f"{option}: found {told!r}, wanted so long ago, as 7d or 12h, or a time such as"
            " 2026-11-10T00:00Z"
        ) from None
