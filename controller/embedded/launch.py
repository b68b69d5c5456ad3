"""Start a program that ends when its parent does. Run as a file, with ``python -I -S``.

Usage: launch.py PARENT_PID PROGRAM ARGUMENT...

The kernel is set to send a SIGTERM at the parent's death (the setting survives
the exec), so that a killed `fuga up` leaves nothing running. `subprocess` could do
it by ``preexec_fn``, which is not safe in a process with threads.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Request a signal on the parent's death, check the parent, and exec the program."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != int(sys.argv[1]):
        sys.exit("the process that started this one has ended")
    os.execv(sys.argv[2], sys.argv[2:])  # noqa: S606 - no shell is wanted


if __name__ == "__main__":
    main()
