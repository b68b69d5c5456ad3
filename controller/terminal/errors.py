"""What a command may end with instead of an answer, and its exit status."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final

from controller.client.errors import ApiError, ApiUnreachableError, ProblemError
from controller.errors import ControllerError

__all__ = [
    "ApiUnreachableError",
    "BadInputError",
    "CliError",
    "ExitStatus",
    "ProblemError",
    "WaitExpiredError",
    "at_the_prompt",
]


class ExitStatus(IntEnum):
    """What the commands answer to the shell; 0 is success."""

    FAILED = 1  #: it was tried and did not work
    BAD_INPUT = 2  #: asked in a way that cannot be answered
    WAIT_EXPIRED = 3  #: `--wait` lasted longer than `--timeout`
    UNREACHABLE = 4  #: no API answers


class CliError(ControllerError):
    """Ends a command with one message and an exit status."""

    status = ExitStatus.FAILED


class BadInputError(CliError):
    """What was typed cannot be meant."""

    status = ExitStatus.BAD_INPUT


class WaitExpiredError(CliError):
    """`--wait` ended before what it waited for."""

    status = ExitStatus.WAIT_EXPIRED


_ADVICE: Final[Mapping[str | None, str]] = MappingProxyType(
    {
        "unauthorized": (
            "Set FUGA_TOKEN, or run the command where `fuga up` keeps its state (FUGA_STATE_DIR)."
        ),
        "forbidden": "This needs another token: `--as TENANT`, or the operator's.",
    }
)


def at_the_prompt(error: ApiError, as_typed: Callable[[str], str] = str) -> CliError:
    """Return what an error of the client means to somebody who typed a command.

    ``as_typed`` tells how a field of the API is called there.
    """
    message = str(error)
    match error:
        case ApiUnreachableError():
            advice = "Is it running? `fuga up` starts it; FUGA_URL or --url names another address."
            status = ExitStatus.UNREACHABLE
        case ProblemError():
            advice = _ADVICE.get(error.code, "")
            status = ExitStatus.BAD_INPUT if error.http_status < 500 else ExitStatus.FAILED
            message = error.said(as_typed)
        case _:
            advice, status = "", ExitStatus.FAILED
    told = CliError("\n".join(filter(None, (message, advice))))
    told.status = status
    return told
