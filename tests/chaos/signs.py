"""What metrics show of faults: labels that a scrape earns, and what each fault has to earn."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

#: Values that tell by being there; all others are counts, which tell by rising.
_GAUGES = ("fuga_hosts", "fuga_fences", "fuga_hosts_in_backoff")
FAMILIES = (
    *_GAUGES,
    "fuga_lease_epoch",
    "fuga_moves_ended",
    "fuga_polls_total",
    "fuga_tasks_total",
    "fuga_problems_total",
)
_SERVER_AWAY = (
    "redis killed",
    "redis restarted",
    "redis stopped",
    "postgresql restarted",
    "postgresql ended at once",
    "postgresql stopped",
)
NOT_READY = "somebody is not ready"


class Reading:
    """What each process told last, to see what the next scrape has that is new."""

    def __init__(self) -> None:
        self._last: dict[str, Mapping[str, Any]] = {}

    def note(self, process: str, told: Mapping[str, Any]) -> set[str]:
        """Return what a scrape shows: who was away, who is not ready, samples."""
        if not told["answers"]:
            return {_away(process)}
        before = self._last.get(process)
        self._last[process] = told
        shown = set() if told["ready"] else {NOT_READY}
        samples: Mapping[str, float] = told["samples"]
        earlier = samples if before is None else before["samples"]
        if before is not None and before["started"] != told["started"]:
            shown.add(_away(process))
            earlier = {}
        for name, value in samples.items():
            is_gauge = name.partition("{")[0] in _GAUGES
            if value > (0 if is_gauge else earlier.get(name, 0)):
                shown.add(name)
        return shown


def missing(fault: Mapping[str, Any], shown: Iterable[str]) -> list[str]:
    """Return what a fault has to show before all is healed, and did not."""
    return _absent([*_wanted(fault), *_wanted_at_last(fault)], shown)


def missing_yet(fault: Mapping[str, Any], shown: Iterable[str]) -> list[str]:
    """Return what it has to show while it lasts, and did not."""
    return _absent(_wanted(fault), shown)


def _absent(patterns: Iterable[str], shown: Iterable[str]) -> list[str]:
    found = set(shown)
    return [wanted for wanted in patterns if not any(re.fullmatch(wanted, each) for each in found)]


def _wanted(fault: Mapping[str, Any]) -> Iterable[str]:
    """Yield patterns of what a fault shows: its process was away, others noticed it."""
    kind = fault["kind"]
    if "process" in fault:
        yield re.escape(_away(fault["process"]))
    if "epoch" in fault:
        yield "fuga_lease_epoch"
    if "until" in fault:
        yield r'fuga_polls_total\{outcome="missed"\}'
        yield r'fuga_hosts\{.*health="(unreachable|down)".*\}'
    if fault.get("fenced"):
        yield r'fuga_fences\{state="fenced"\}'
    if fault.get("failed_builds"):
        yield r'fuga_tasks_total\{outcome="failed",task=".*create_vm"\}'
    if kind in _SERVER_AWAY:
        yield NOT_READY
    if kind in ("tasks repeated", "backlog of builds"):
        yield r'fuga_tasks_total\{outcome="not_ours",.*\}'


def _wanted_at_last(fault: Mapping[str, Any]) -> Iterable[str]:
    """Yield patterns of what shows when work goes on: a move that was struck came to an end."""
    if "move" in fault:
        yield r"fuga_moves_ended\{.*\}"


def _away(process: str) -> str:
    return f"{process} was away"
