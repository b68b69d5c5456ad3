"""Structured logging for all processes: an event name and keys."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable, MutableMapping
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from textwrap import indent
from typing import Any, Final, Literal, TextIO

import structlog
from structlog.typing import ExcInfo

from plain_text import plain, plain_lines
from registry.db import mask_line
from service.log_stream import LogStream

#: JSON lines, text, or text only at a terminal (auto).
LogFormat = Literal["auto", "json", "text"]
LogLevel = Literal["debug", "info", "warning", "error", "critical"]
#: Gets the level and the kind of each warning and error.
OnProblem = Callable[[str, str], None]
#: Keys of an event whose values the renderer takes apart itself.
_OF_STRUCTLOG: Final = frozenset({"exc_info", "exception", "stack", "stack_info"})

_PROBLEMS: Final = {
    "warning": "warning",
    "error": "error",
    "exception": "error",
    "critical": "error",
}


def configure_logging(
    level: LogLevel = "info",
    stream: TextIO | None = None,
    *,
    form: LogFormat = "auto",
    on_problem: OnProblem | None = None,
) -> None:
    """Log to ``stream`` (standard error by default). Call once, in the entry point.

    Log records of libraries get the same format. ``on_problem`` is called with each warning and
    error, by event name, or by logger name for libraries.
    """
    stream = stream or sys.stderr or Path(os.devnull).open("w")  # noqa: SIM115 - for good
    as_text = form == "text" or (form == "auto" and stream.isatty())
    number = logging.getLevelNamesMapping()[level.upper()]
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    renderer: list[Any] = (
        [
            _escape_control_characters,
            structlog.dev.ConsoleRenderer(
                colors=stream.isatty(), exception_formatter=_plain_traceback
            ),
        ]
        if as_text
        else [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    )
    renderer.append(mask_line)
    # A failure to log must not fail the call.
    lasting = LogStream(stream, _lost_lines_text if as_text else _lost_lines_json)
    structlog.configure(
        processors=[_problem_counter(on_problem), *shared, *renderer],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.WriteLoggerFactory(lasting),  # type: ignore[arg-type]  # it writes
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(lasting)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[
                _problem_counter(on_problem),
                *shared,
                structlog.stdlib.add_logger_name,
            ],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderer],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(number, logging.INFO))
    # It logs every read of the schema.
    logging.getLogger("alembic").setLevel(logging.WARNING)


def _lost_lines_text(lines: int, reason: str) -> str:
    """Return the log line that lines were lost, as text."""
    return f"{lines} lines of this log are lost: {reason}"


def _lost_lines_json(lines: int, reason: str) -> str:
    """Return the log line that lines were lost, as JSON."""
    now = datetime.now(UTC).isoformat()
    event = {"event": "log_lines_lost", "level": "warning", "lines": lines, "error": reason}
    return json.dumps(event | {"timestamp": now})


def _escape_control_characters(
    _logger: Any, _method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Escape control characters in a log event: no foreign text forges lines or commands."""
    for key, value in event.items():
        if isinstance(value, str):
            event[key] = plain(value)
        elif not isinstance(value, bool | int | float | None) and not key.startswith("_"):
            event[key] = value if key in _OF_STRUCTLOG else plain(repr(value))
    return event


def _plain_traceback(stream: TextIO, exc_info: ExcInfo) -> None:
    """Write an exception to the log, without the values of local variables."""
    # Without the values of local variables: secrets are among them.
    text = StringIO()
    structlog.dev.plain_traceback(text, exc_info)
    stream.write(indent(plain_lines(text.getvalue()), "  "))


def _problem_counter(on_problem: OnProblem | None) -> Any:
    """Return a structlog processor that counts warnings and errors by event name."""

    def count_problem_event(
        _: Any, method: str, event: MutableMapping[str, Any]
    ) -> MutableMapping[str, Any]:
        level = _PROBLEMS.get(method)
        if level is not None and on_problem is not None:
            record = event.get("_record")
            on_problem(level, str(event["event"]) if record is None else record.name)
        return event

    return count_problem_event
