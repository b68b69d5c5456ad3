"""`fuga simulate --from-registry`: simulates a period of the live system."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from controller.cli.simulations.study_run import SimulateOptions
from controller.session.settings import load_settings
from controller.settings import ControllerSettings
from controller.terminal.errors import BadInputError
from controller.terminal.output import echo, echo_lines
from controller.terminal.times import clock, parse_moment, typed_zone
from controller.what_ifs.decision_settings import decision_from_round, decision_from_settings
from registry import Registry
from registry.admin import PastDecision
from simulation import DecidedRounds, InputError, Recording, read_recording, record_period

_FOLDER: Final = "registry"
_SINCE: Final = "7d"
_NO_ZONES: Final = "none"  #: --policy decides everywhere, whatever the live system does


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingWindow:
    """The period of the register center to record, as typed."""

    since: str | None
    until: str | None
    anonymous: bool

    def times(self, now: datetime) -> tuple[datetime, datetime]:
        """Return the beginning and end of the period; the end is not after ``now``."""
        since = parse_moment(self.since or _SINCE, "--since", now)
        until = now if self.until is None else min(now, parse_moment(self.until, "--until", now))
        if since >= until:
            begin = clock(since, typed_zone(self.since))
            end = clock(until, typed_zone(self.until))
            raise BadInputError(f"--since {begin} is not before the end, {end}")
        return since, until


def save_recording(window: RecordingWindow, folder: Path) -> None:
    """Write a recording to a folder of its own, and print how to simulate it."""
    if folder.exists():
        raise BadInputError(f"--save-trace {folder}: already exists")
    found = _record_window(window, folder)
    echo_lines(_recording_summary(found))
    echo(found.command())


def record_and_build_options(
    options: SimulateOptions, window: RecordingWindow, *, out: Path, resume: bool
) -> SimulateOptions:
    """Record the register center into DIR; return options that simulate the recording.

    A resumed study keeps the recording that it began with. Slots, parameters and budget
    that are not given are those of the live system's rounds; so are the policies of zones,
    if the hosts are those of the live system.
    """
    stray = [word for word in options.sweep if "=" not in word]
    if stray:
        raise BadInputError(f"{stray[0]}: --from-registry takes no TRACE")
    if options.types is not None or options.trace_format is not None:
        raise BadInputError("--types and --format cannot be used with --from-registry")
    folder = out / _FOLDER
    if resume and folder.is_dir():
        try:
            found = read_recording(folder)
        except InputError as error:
            raise BadInputError(str(error)) from error
    else:
        if (out / "runs").exists():
            raise BadInputError(f"{out} holds a simulation: give another --out, or --resume")
        found = _record_window(window, folder)
    echo_lines(_recording_summary(found), err=True)
    return replace(
        options,
        trace=found.trace,
        hosts=options.hosts or found.hosts,
        tree=options.tree or found.tree,
        quotas=options.quotas or found.quota_file,
        zone_policies=_zone_options(options, found),
        parameters=(*found.parameters, *options.parameters),
        slot_length_s=options.slot_length_s or found.decided.slot_length_s,
        budget=found.decided.budget_units or 0 if options.budget is None else options.budget,
        fairness_memory_s=found.decided.fairness_memory_s
        if options.fairness_memory_s is None
        else options.fairness_memory_s,
        began_at_s=found.began_at_s,
        until_s=None if options.drain else found.length_s,
    )


def _zone_options(options: SimulateOptions, found: Recording) -> Sequence[str]:
    if options.zone_policies or options.hosts is not None or found.zones is None:
        return [] if [*options.zone_policies] == [_NO_ZONES] else options.zone_policies
    return [found.zones]


def _record_window(window: RecordingWindow, folder: Path) -> Recording:
    """Record a period of the register center into a folder; refuse one without requests."""
    settings = load_settings()
    registry = Registry.connect(settings.resolved_database_url())
    try:
        since, until = window.times(registry.now())
        decided = deciding_settings(registry.history.last_decision(since, until), settings)
        since = _slot_start(since, decided.slot_length_s)
        with registry.history.read_period(since, until) as past:
            found = record_period(past, folder, decided, anonymous=window.anonymous)
    finally:
        registry.close()
    if not found.vms_running + found.vms_waiting + found.vms_requested:
        shutil.rmtree(folder)
        raise BadInputError(f"no requests from {found.since} to {found.until}")
    return found


def deciding_settings(newest: PastDecision | None, settings: ControllerSettings) -> DecidedRounds:
    """Return the policies of the period's newest round; without rounds, those of the settings."""
    return DecidedRounds(**decision_from_round(newest, decision_from_settings(settings)))


def _slot_start(at: datetime, length_s: float) -> datetime:
    """Return the start of the system's slot that contains a time."""
    return datetime.fromtimestamp(at.timestamp() // length_s * length_s, UTC)


def _recording_summary(found: Recording) -> str:
    """Return lines about a recording: its period, VMs, tenants, and the policies that decided."""
    decided = found.decided
    lines = [
        f"{found.since} to {found.until}: {found.hosts_there} hosts, {found.vms_running} VMs"
        f" already running, {found.vms_waiting} waiting, {found.vms_requested} requested"
        f" later; in {found.folder}",
        f"{found.groups} groups of tenants and {found.quotas} quotas, as they were at each"
        " time; capacity and labels of hosts as of now",
        f"decided by {decided.policy} in slots of {decided.slot_length_s:g} s"
        f"{_zone_policies_text(decided)} ({decided.source})",
    ]
    return "\n".join(lines)


def _zone_policies_text(decided: DecidedRounds) -> str:
    return "".join(
        f", in zone {name} by {its['policy']}" for name, its in decided.zone_policies.items()
    )
