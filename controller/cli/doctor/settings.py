"""Whether the processes of a site run with the same settings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, Final

from controller.cli.doctor.check_result import CheckResult
from controller.client.errors import ApiError
from controller.session.session import Session
from controller.terminal.errors import CliError
from controller.terminal.name_lists import first_names

#: Of one process by their nature: addresses, folders, what a worker is for.
_OF_ONE: Final = frozenset(
    {
        "FUGA_CONCURRENCY",
        "FUGA_HOST_CREDENTIALS",
        "FUGA_LISTEN",
        "FUGA_METRICS_LISTEN",
        "FUGA_QUEUES",
        "FUGA_STATE_DIR",
    }
)
_API: Final = "the API"
_CONTROL: Final = "control"
_NAMED: Final = 3


def process_settings_findings(session: Session) -> Iterator[CheckResult]:
    """Compare the settings of the running processes and of the API."""
    try:
        ours = {each["name"]: each["value"] for each in session.api.items("settings")}
        others = list(session.api.items("settings/processes"))
    except (ApiError, CliError):  # an older API, or none: another finding reports that
        return
    api = {"kind": "api", "name": _API, "settings": ours}
    yield from setting_differences([api, *others])


def setting_differences(processes: list[Mapping[str, Any]]) -> Iterator[CheckResult]:
    """Report the settings in which processes differ.

    Between control centres that is wrong: what is decided would depend on which of them leads.
    """
    names = sorted({name for each in processes for name in each["settings"]} - _OF_ONE)
    for name in names:
        who: defaultdict[str | None, list[Mapping[str, Any]]] = defaultdict(list)
        for each in processes:
            if name in each["settings"]:
                who[each["settings"][name]].append(each)
        if len(who) > 1:
            deciding = [
                value for value, some in who.items() if any(p["kind"] == _CONTROL for p in some)
            ]
            values = "; ".join(
                f"{value or 'not set'}: {_process_list(some)}" for value, some in who.items()
            )
            well = len(deciding) < 2
            yield CheckResult("settings", well, f"{name} differs: {values}", note=True)
    if len(processes) > 1:
        yield CheckResult(
            "settings", True, f"of the API and {len(processes) - 1} processes compared"
        )


def _process_list(processes: list[Mapping[str, Any]]) -> str:
    return first_names([each["name"] for each in processes], _NAMED)
