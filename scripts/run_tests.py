"""Run every suite and tell on what the tests ran.

Usage: run_tests.py [pytest arguments]     (`make test ARGS="-k ledger"`)

Fast suites run on two processes. Those that start hosts run one after another, beside the
fast ones: they mostly wait for guests. With CI=true a skipped test on real guests or
PostgreSQL fails.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

NO_TESTS = 5  # pytest's exit status for "nothing collected"
GROUNDS = {
    "sqlite": "a register center on SQLite",
    "postgresql": "a register center on PostgreSQL",
    "test_driver": "libvirt's test driver",
    "qemu": "real QEMU guests",
}
STAGES: list[dict[str, list[str]]] = [
    {
        "without hosts": ["-n", "2", "-m", "not qemu and not test_driver"],
        "with hosts": ["-m", "qemu or test_driver"],
    },
]
NEEDED_BY_CI = ("postgresql", "qemu")


def _run_side_by_side(groups: dict[str, list[str]], arguments: list[str]) -> list[int]:
    """Exit statuses of the groups; the first one's output is seen as it comes, then the others'."""
    running = [_Group(name, [*options, *arguments]) for name, options in groups.items()]
    try:
        statuses = [group.show_until_ended() for group in running]
    except KeyboardInterrupt:  # reached them too: each ends the servers that it started
        for group in running:
            group.process.wait()
        raise
    return [0 if status == NO_TESTS and arguments else status for status in statuses]


class _Group:
    """One pytest of its own, whose output waits in a file until somebody looks."""

    def __init__(self, name: str, options: list[str]) -> None:
        self.name = name
        self.started = time.monotonic()
        self.output = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the group
        self.process = subprocess.Popen(
            [sys.executable, "-m", "pytest", "-q", "--durations=8", *options],
            stdout=self.output,
            stderr=subprocess.STDOUT,
        )

    def show_until_ended(self) -> int:
        print(f"--- tests {self.name} ---", flush=True)
        shown, ended = 0, False
        while not ended:
            ended = self.process.poll() is not None
            text = os.pread(self.output.fileno(), 1 << 24, shown)
            shown += len(text)
            sys.stdout.buffer.write(text)
            sys.stdout.buffer.flush()
            time.sleep(0 if ended else 0.5)
        print(f"--- {time.monotonic() - self.started:.0f} s ---", flush=True)
        return self.process.wait()


def main() -> int:
    """Run the groups and print the counts."""
    arguments = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="fuga-test-") as folder:
        counts = Path(folder) / "counts"
        os.environ["FUGA_TEST_COUNTS"] = str(counts)
        statuses = [status for groups in STAGES for status in _run_side_by_side(groups, arguments)]
        total: Counter[str] = Counter()
        for line in counts.read_text().splitlines() if counts.exists() else ():
            total.update(json.loads(line))
    for ground, words in GROUNDS.items():
        print(
            f"ran on {words}: {total[f'{ground} passed'] + total[f'{ground} failed']}"
            f" (skipped: {total[f'{ground} skipped']})"
        )
    print(
        f"{total['all passed']} passed, {total['all failed']} failed, "
        f"{total['all skipped']} skipped"
    )
    if os.environ.get("CI") == "true":
        for ground in NEEDED_BY_CI:
            if total[f"{ground} skipped"]:
                print(f"CI needs {GROUNDS[ground]}, but tests were skipped (reasons above)")
                return 1
    return max(statuses)


if __name__ == "__main__":
    # A shell that starts this in the background has Ctrl-C ignored, in all that comes of it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(main())
