"""Errors that end a command, and their exit status."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final

from controller.client.errors import ApiError, ApiProblemError, ApiUnreachableError
from controller.errors import ControllerError

__all__ = [
    "ApiProblemError",
    "ApiUnreachableError",
    "BadInputError",
    "CliError",
    "ExitStatus",
    "WaitExpiredError",
    "command_error",
]


class ExitStatus(IntEnum):
    """The exit statuses of commands; 0 is success."""

    FAILED = 1  #: it was tried and did not work
    BAD_INPUT = 2  #: the call is wrong
    WAIT_EXPIRED = 3  #: `--wait` lasted longer than `--timeout`
    UNREACHABLE = 4  #: no API answers


class CliError(ControllerError):
    """Ends a command with one message and an exit status."""

    status = ExitStatus.FAILED


class BadInputError(CliError):
    """What was typed on the command line is wrong."""

    status = ExitStatus.BAD_INPUT


class WaitExpiredError(CliError):
    """`--wait` timed out."""

    status = ExitStatus.WAIT_EXPIRED


_ADVICE: Final[Mapping[str | None, str]] = MappingProxyType(
    {
        "unauthorized": (
            "Set FUGA_TOKEN, or run the command where `fuga up` keeps its state (FUGA_STATE_DIR)."
        ),
        "forbidden": "This needs another token: use `--as TENANT`, or an operator's token.",
    }
)


def command_error(error: ApiError, as_typed: Callable[[str], str] = str) -> CliError:
    """Return the command-line message for an error of the client.

    ``as_typed`` maps a field of the API to the typed option.
    """
    message = str(error)
    match error:
        case ApiUnreachableError():
            advice = (
                "Check that it runs (`fuga up` starts it), or give its address: FUGA_URL or --url."
            )
            status = ExitStatus.UNREACHABLE
        case ApiProblemError():
            advice = _ADVICE.get(error.code, "")
            status = ExitStatus.BAD_INPUT if error.http_status < 500 else ExitStatus.FAILED
            message = error.message_with_names(as_typed)
        case _:
            advice, status = "", ExitStatus.FAILED
    advised = CliError("\n".join(filter(None, (message, advice))))
    advised.status = status
    return advised
