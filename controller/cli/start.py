"""Start of the command `fuga`: sets up Ctrl-C before it imports anything."""

import os
import signal
import sys


def main() -> None:
    """Run the command; Ctrl-C ends it without a traceback, even during imports."""
    # Processes that serve install their own handlers.
    before = signal.signal(signal.SIGINT, _exit_on_interrupt)
    try:
        from controller.cli.main import main as run  # noqa: PLC0415
        from controller.terminal.guarded_stdout import guard_output  # noqa: PLC0415
    except ModuleNotFoundError as error:
        sys.exit(
            f"fuga: the Python package {error.name} is missing in {sys.prefix}, which was not"
            " installed to its end: pip install 'fuga-controller[host]',"
            " or -r requirements/runtime.lock for the locked versions"
        )

    guard_output()
    signal.signal(signal.SIGINT, before)
    try:
        run()
    except KeyboardInterrupt:
        sys.exit(130)


def _exit_on_interrupt(*_: object) -> None:
    os._exit(130)
