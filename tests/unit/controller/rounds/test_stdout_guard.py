"""What a C library prints does not come between us and who reads our answers."""

from __future__ import annotations

import subprocess
import sys

PRINTS_IN_C = "import ctypes; ctypes.CDLL(None).puts(b'stray')"


def ended(*lines: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=True
    )


def test_stray_lines_go_to_standard_error_and_ours_to_standard_output() -> None:
    done = ended(
        "from controller.terminal.guarded_stdout import keep_output_clean",
        "keep_output_clean()",
        PRINTS_IN_C,
        "print('ours: \u00e9')",
    )

    assert (done.stdout, done.stderr) == ("ours: \u00e9\n", "stray\n")


def test_who_takes_standard_output_has_it_alone() -> None:
    done = ended(
        "from controller.rounds.stdout_guard import capture_stdout",
        "stdout = capture_stdout()",
        PRINTS_IN_C,
        "print('stray, too')",
        "stdout.write(b'ours'); stdout.flush()",
    )

    assert done.stdout == "ours"
    assert sorted(done.stderr.splitlines()) == ["stray", "stray, too"]
