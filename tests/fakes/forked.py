"""What a fork server forks in tests: a child that does what each line says."""

from __future__ import annotations

import os
import subprocess
import sys
import time


def main() -> None:
    """Answer each line with a line."""
    for line in sys.stdin.buffer:
        match line.decode().split():
            case ["die", status]:
                os._exit(int(status))
            case ["close"]:
                sys.stdout.close()
                return
            case ["remove", path]:
                sys.stdin.buffer.read()
                time.sleep(0.2)
                os.unlink(path)  # noqa: PTH108
                return
            case ["hang"]:
                time.sleep(600)
            case ["start"]:
                said = str(subprocess.Popen(["sleep", "600"]).pid)
            case ["parent"]:
                said = str(os.getppid())
            case ["descriptors"]:
                said = " ".join(sorted(os.listdir("/proc/self/fd"), key=int))  # noqa: PTH208
            case ["raise"]:
                raise ValueError("as a line said")
        sys.stdout.write(said + "\n")
        sys.stdout.flush()
