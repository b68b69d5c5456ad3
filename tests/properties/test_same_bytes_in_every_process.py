"""Nothing but the file and the seed decides: not the hash seed, threads, or where memory lies."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.properties.answers_of_all import lines

ROOT = Path(__file__).parents[2]
PROBLEMS = 2

#: What differs from one process to another, without any right to matter.
ELSEWHERE = {
    "PYTHONHASHSEED": "4711",
    "PYTHONMALLOC": "malloc",
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
}


def test_every_policy_and_mechanism_answers_with_the_same_bytes_in_another_process():
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.properties.answers_of_all", "--problems", str(PROBLEMS)],
        env={**os.environ, **ELSEWHERE},
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    here = list(lines(range(PROBLEMS)))
    there, _ = child.communicate()

    assert child.returncode == 0
    assert there.splitlines() == here
