"""Where the command `fuga` begins: nothing is imported before Ctrl-C ends it as it should."""

import os
import signal
import sys


def main() -> None:
    """Run the command; Ctrl-C ends it without a traceback, also while it is being imported."""
    # Until a command says otherwise; a process that serves has handlers of its own.
    before = signal.signal(signal.SIGINT, _leave)
    from controller.cli.main import main as run  # noqa: PLC0415

    signal.signal(signal.SIGINT, before)
    try:
        run()
    except KeyboardInterrupt:
        sys.exit(130)


def _leave(*_: object) -> None:
    os._exit(130)
