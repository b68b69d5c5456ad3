"""Run every suite and tell on what the tests ran.

Usage: run_tests.py [pytest arguments]     (`make test ARGS="-k ledger"`)

Fast suites run on two processes; those that start hosts run one after another,
as they share the machine. With CI=true a skipped test on real guests or PostgreSQL fails.
"""

from __future__ import annotations

import json
import os
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
NEEDED_BY_CI = ("postgresql", "qemu")


def main() -> int:
    """Run both groups and print the counts."""
    arguments = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="fuga-test-") as folder:
        counts = Path(folder) / "counts"
        groups = {
            "without hosts": ["-n", "2", "-m", "not qemu and not test_driver"],
            "with hosts": ["-m", "qemu or test_driver"],
        }
        statuses = []
        for name, options in groups.items():
            print(f"--- tests {name} ---", flush=True)
            started = time.monotonic()
            status = subprocess.run(
                [sys.executable, "-m", "pytest", "-q", "--durations=8", *options, *arguments],
                env={**os.environ, "FUGA_TEST_COUNTS": str(counts)},
                check=False,
            ).returncode
            print(f"--- {time.monotonic() - started:.0f} s ---", flush=True)
            statuses.append(0 if status == NO_TESTS and arguments else status)
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
    sys.exit(main())
