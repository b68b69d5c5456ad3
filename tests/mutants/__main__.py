"""Change the meaning of placement/ in one place at a time, and see whether a test fails.

    make mutants                          # all of them, and what survives
    make mutants ARGS="--only exchange"   # those of files that contain a word

Each change is made in a copy of the tree, so nothing here is touched.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.mutants.listed import ROOT, Mutant, listed


def main() -> int:
    """Run the listed mutants; the exit status says whether any survived."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--only", default="", help="word that the file's name contains")
    chosen = [each for each in listed() if arguments.parse_args().only in each.file]
    survivors = []
    with tempfile.TemporaryDirectory(prefix="fuga-mutants-") as folder:
        copy = copied_to(Path(folder))
        for number, mutant in enumerate(chosen, start=1):
            started = time.monotonic()
            killed = is_killed(mutant, copy)
            took = f"{time.monotonic() - started:4.0f} s"
            verdict = "killed  " if killed else "SURVIVES"
            print(f"{number:3}/{len(chosen)} {verdict} {took}  {mutant.file}: {mutant.means}")
            if not killed:
                survivors.append(mutant)
    print(f"{len(chosen) - len(survivors)} of {len(chosen)} mutants killed")
    return 1 if survivors else 0


def copied_to(folder: Path) -> Path:
    """Return a copy of the files that git knows."""
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    for name in names.stdout.decode().rstrip("\0").split("\0"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    return folder


def is_killed(mutant: Mutant, copy: Path) -> bool:
    """Make a change in the copy, run its tests, and take it back."""
    file = copy / mutant.file
    before = file.read_text()
    file.write_text(mutant.applied_to(before))
    try:
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
        found = subprocess.run(
            [*command, *mutant.tests], cwd=copy, capture_output=True, text=True, check=False
        )
    finally:
        file.write_text(before)
    if found.returncode not in (0, 1):
        sys.exit(f"{mutant.file}: its tests could not be run\n{found.stdout[-3000:]}")
    return found.returncode == 1


if __name__ == "__main__":
    sys.exit(main())
