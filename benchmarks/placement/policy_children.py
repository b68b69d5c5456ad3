"""Print how long a question to policies takes in a new interpreter and in a fork of a warm one.

    python -m benchmarks.placement.policy_children [--repeats 7]

A question as the API has it for a replay: a process is started, decides a small round and is
killed. Both ways take turns in one run, so that their ratio differs less between machines than
seconds do. The limit is a second and a tenth of a new interpreter's time. Memory is what the
kernel counts as private to a process.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks.kit import parser
from controller.fork_server.children import StartChild, start_interpreter
from controller.fork_server.client import ForkServer
from controller.rounds.policy_process import PRELOADED, PolicyProcess
from tests.round_inputs import some_inputs

LIMIT_S: Final = 1.0
LIMIT_RATIO: Final = 0.1
_PATIENCE_S: Final = 600.0


def main(argv: Sequence[str] | None = None) -> None:
    repeats = parser(__doc__, repeats=7).parse_args(argv).repeats
    inputs = some_inputs(policy="fuga").encode()
    server = ForkServer(PRELOADED)
    try:
        first_s, memory_mib = decided(inputs, server.fork)
        new_s, warm_s = [], []
        for _ in range(repeats):
            new_s.append(decided(inputs, start_interpreter)[0])
            warm_s.append(decided(inputs, server.fork)[0])
        server_mib = private_mib(server.pid or 0)
    finally:
        server.close()
    ratio = median(warm_s) / median(new_s)
    print(f"{'a question':<36}{'median s':>10}{'least':>8}{'most':>8}")
    for name, seconds in (("in a new interpreter", new_s), ("in a fork", warm_s)):
        print(f"{name:<36}{median(seconds):>10.3f}{min(seconds):>8.3f}{max(seconds):>8.3f}")
    print(f"{'the first, which starts the server':<36}{first_s:>10.3f}")
    above = "  ABOVE" if ratio > LIMIT_RATIO or median(warm_s) > LIMIT_S else ""
    print(f"ratio {ratio:.3f}, limit {LIMIT_RATIO:g} and {LIMIT_S:g} s{above}")
    print(f"private memory: server {server_mib} MiB, a child {memory_mib} MiB")


def decided(inputs: bytes, start: StartChild) -> tuple[float, int]:
    """Return the seconds of one decision in a child process, and the memory of the process."""
    process = PolicyProcess(start=start)
    began = time.perf_counter()
    try:
        process.decide(inputs, policy="fuga", deadline_s=_PATIENCE_S)
        seconds = time.perf_counter() - began
        child = process._child
        return seconds, private_mib(child.pid if child else 0)
    finally:
        process.close()


def private_mib(pid: int) -> int:
    """Return the private memory of a process in MiB."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) >> 10


if __name__ == "__main__":
    main()
