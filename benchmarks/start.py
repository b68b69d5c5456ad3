"""Print the processor time that commands take, against a Python that imports Click and ends.

    python -m benchmarks.start [--repeats 7]

A command imports what it needs and nothing else. Those that ask the API ask one on
loopback, within this process, that answers at once with 100 VMs, requests and hosts.
The limit is a quarter of a second on the machine where ``import click`` takes 42 ms,
so six times that: machines differ, and the ratio does so much less. Processor time of
the child process, the least of some runs.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from uuid import UUID

from benchmarks.kit import parser
from tests.fakes.http_api import http_api

FUGA: Final = str(Path(sys.executable).parent / "fuga")
BARE: Final = "python, import click"
ASK: Final = (
    *("vms", "vms -o json", "requests", "host list", "status", "events", "type list"),
    *("explain job-0", "stop job-0", "--version"),
)
#: The last imports numpy and every policy, ours and those of installed packages.
TELL: Final = ("--help", "vms --help", "solve --help", "simulate --help", "solve --list")
#: How many times the bare Python's time a command that asks the API may take.
LIMIT: Final = 6.0
_MANY: Final = 100


def main(argv: Sequence[str] | None = None) -> None:
    given = parser(__doc__, repeats=7).parse_args(argv)
    commands = {BARE: [sys.executable, "-c", "import click"]}
    commands |= {f"fuga {words}": [FUGA, *words.split()] for words in (*ASK, *TELL)}
    with asked_at_once() as environment:
        seconds = least(commands, environment, given.repeats)
    print(f"{'command':<24}{'seconds':>9}{'of bare':>9}{'limit':>7}")
    for name, taken in seconds.items():
        ratio = taken / seconds[BARE]
        limit = f"{LIMIT:g}" if name.removeprefix("fuga ") in ASK else "-"
        above = "  ABOVE" if limit != "-" and ratio > LIMIT else ""
        print(f"{name:<24}{taken:>9.3f}{ratio:>9.1f}{limit:>7}{above}")


def least(
    commands: Mapping[str, Sequence[str]], environment: Mapping[str, str], repeats: int
) -> dict[str, float]:
    """Return the least processor time of each command; commands run in turn to share noise."""
    turns = [
        {name: child_seconds(command, environment) for name, command in commands.items()}
        for _ in range(repeats)
    ]
    return {name: min(turn[name] for turn in turns) for name in commands}


def child_seconds(command: Sequence[str], environment: Mapping[str, str]) -> float:
    """Return the processor time of one child process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


@contextmanager
def asked_at_once() -> Iterator[dict[str, str]]:
    """Serve the API that the commands call; yield an environment that points to it."""
    now = datetime.now(UTC).isoformat()
    common = {"tenant": "a", "created_at": now, "vm_type": "small", "labels": {}}
    numbered = [{**common, "id": str(UUID(int=each)), "number": each} for each in range(_MANY)]
    with http_api() as api, tempfile.TemporaryDirectory() as state:
        api.on_list("/v1/vms", *({**each, **_a_vm(each["number"])} for each in numbered))
        api.on_list("/v1/requests", *({**each, **_a_request(each["number"])} for each in numbered))
        api.on_list("/v1/hosts", *({**each, **_a_host(each["number"])} for each in numbered))
        api.on_list("/v1/vm-types", {"name": "small", "resources": {"vcpus": 1}})
        api.on("GET", "/v1/events", {"items": [], "next": 0})
        api.on("GET", "/v1/status", _WELL)
        first = numbered[0]["id"]
        waits = {"waiting": None, "wanted": 1, "placed": 1, "running": 1}
        api.on("GET", f"/v1/requests/{first}/explanation", {**common, **_a_request(0), **waits})
        api.on("POST", f"/v1/requests/{first}/stop", {**numbered[0], **_a_request(0)})
        settings = {"FUGA_URL": api.url, "FUGA_TOKEN": "t", "FUGA_STATE_DIR": state}
        yield {**os.environ, **settings}


_WELL: Final = {
    **dict.fromkeys(("leader", "leads_since", "last_slot_at", "last_round", "last_round_at")),
    **dict.fromkeys(("slot_length_s", "hosts", "oldest_unbuilt_at")),
    **{"healthy": True, "late": [], "paused": False, "processes": []},
}


def _a_vm(number: int) -> dict[str, object]:
    state = {"desired": "running", "observed": "running", "assignment_state": "active"}
    return {"name": f"web-{number}", "request": "web", "host": f"host-{number}", **state}


def _a_request(number: int) -> dict[str, object]:
    counts = {"count": 1, "vms_placed": 1, "vms_running": 1}
    return {"name": f"job-{number}", "state": "placed", **counts}


def _a_host(number: int) -> dict[str, object]:
    return {"name": f"host-{number}", "health": "up", "labels": {}, "inventories": []}


if __name__ == "__main__":
    main()
