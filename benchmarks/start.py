"""Print how long the command takes to say what it can do, beside Python that does nothing.

    python -m benchmarks.start [--repeats 5]

Heavy imports (numpy, libvirt, the web framework) happen where they are needed,
so that a command line answers at once; half a second is the most that ``--help``
should take. Processor time of the child process, the least of some runs.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

FUGA = str(Path(sys.executable).parent / "fuga")
NOTHING = "python -c pass"
COMMANDS = {
    NOTHING: [sys.executable, "-c", "pass"],
    "fuga --help": [FUGA, "--help"],
    "fuga solve --help": [FUGA, "solve", "--help"],
    "fuga solve --list": [FUGA, "solve", "--list"],
}
#: Seconds that ``--help`` should take at most.
TARGET_S = 0.5


def main(argv: Sequence[str] | None = None) -> None:
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("--repeats", type=int, default=5)
    given = arguments.parse_args(argv)
    print(f"{'command':<20}{'seconds':>9}{'of nothing':>12}{'target':>8}")
    base = 0.0
    for name, command in COMMANDS.items():
        seconds = min(child_seconds(command) for _ in range(given.repeats))
        base = base or seconds
        target = f"{TARGET_S:g}" if name.endswith("--help") else "-"
        print(f"{name:<20}{seconds:>9.3f}{seconds / base:>12.1f}{target:>8}", flush=True)


def child_seconds(command: Sequence[str]) -> float:
    """Return the processor time of one child process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


if __name__ == "__main__":
    main()
