"""The child processes of a what-if: one reads the register center, the other simulates.

The first gets the database's URL and runs no policy. The second runs policies, which may be
plugins, and gets files only. The job is a line of JSON on standard input. The input then stays
open, and its end ends the process. Answers are lines of JSON.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from controller import debug
from controller.rounds.stdout_guard import capture_stdout
from controller.what_ifs.simulations import simulate_both
from controller.what_ifs.site_recording import record_site

Report = Callable[[Mapping[str, Any]], None]
_OPERATIONS: Final[Mapping[str, Callable[[Mapping[str, Any], Report], Mapping[str, Any]]]] = (
    MappingProxyType({"read": record_site, "simulate": simulate_both})
)


def main() -> None:
    """Run one job of a what-if in this process; report its result or its error."""
    answers = capture_stdout()
    job = json.loads(sys.stdin.buffer.readline())
    threading.Thread(target=_exit_with_parent, args=(job["folder"],), daemon=True).start()

    def report(message: Mapping[str, Any]) -> None:
        answers.write(json.dumps(message).encode() + b"\n")
        answers.flush()

    try:
        report({"done": _OPERATIONS[job["operation"]](job, report)})
    except Exception as error:
        if debug.tracebacks_enabled():
            traceback.print_exc()
        report({"failed": f"{type(error).__name__}: {error}"[:2_000]})


def _exit_with_parent(folder: str) -> None:
    """Exit when the parent closes standard input or dies; remove the folder of the job."""
    while os.read(0, 4096):
        time.sleep(0)
    # A parent that was killed could not remove its files.
    with contextlib.suppress(OSError):
        shutil.rmtree(Path(folder), ignore_errors=True)
    os._exit(1)


if __name__ == "__main__":
    main()
