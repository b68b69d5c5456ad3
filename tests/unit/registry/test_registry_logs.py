from __future__ import annotations

import io
import json
import logging
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from service.logs import LogFormat, configure_logging
from tests.hostile_text import HOSTILE, is_forbidden
from tests.servers.small_disks import memory_disk


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_an_event_is_a_line_of_json_with_its_keys() -> None:
    stream = io.StringIO()
    configure_logging("info", stream)
    structlog.contextvars.bind_contextvars(slot="2026-01-01T00:00:00Z")

    structlog.get_logger().info("round_finished", placed=41, duration_s=0.18)

    (line,) = lines(stream)
    assert line["event"] == "round_finished"
    assert (line["level"], line["placed"], line["duration_s"]) == ("info", 41, 0.18)
    assert line["slot"] == "2026-01-01T00:00:00Z"
    assert str(line["timestamp"]).endswith("Z")


def test_what_is_below_the_level_is_not_written() -> None:
    stream = io.StringIO()
    configure_logging("WARNING", stream)

    structlog.get_logger().info("quiet")
    logging.getLogger("library").info("quiet")
    structlog.get_logger().warning("loud")

    assert [line["event"] for line in lines(stream)] == ["loud"]


def test_libraries_log_in_the_same_form() -> None:
    stream = io.StringIO()
    configure_logging("info", stream)

    logging.getLogger("celery").warning("connection to %s lost", "broker")

    (line,) = lines(stream)
    assert line["event"] == "connection to broker lost"
    assert (line["level"], line["logger"]) == ("warning", "celery")


def test_an_error_carries_its_traceback() -> None:
    stream = io.StringIO()
    configure_logging("info", stream)

    try:
        int("no such thing")
    except ValueError:
        structlog.get_logger().exception("task_failed")
        logging.getLogger("library").exception("library_failed")

    first, second = lines(stream)
    assert "ValueError: invalid literal" in str(first["exception"])
    assert "ValueError: invalid literal" in str(second["exception"])


def test_text_is_for_people_and_json_for_programs_whatever_the_stream_is() -> None:
    text, document = io.StringIO(), io.StringIO()

    configure_logging("info", text, form="text")
    structlog.get_logger().info("round_finished", placed=41)
    configure_logging("info", document, form="json")
    structlog.get_logger().info("round_finished", placed=41)

    assert "round_finished" in text.getvalue()
    assert "placed=41" in text.getvalue()
    assert lines(document)[0]["placed"] == 41


def test_warnings_and_errors_are_told_by_kind_and_those_of_libraries_by_logger() -> None:
    shown: list[tuple[str, str]] = []
    configure_logging("info", io.StringIO(), on_problem=lambda *each: shown.append(each))
    log = structlog.get_logger()

    log.info("round_finished")
    log.warning("look_missed", host="h1")
    log.error("slot_skipped")
    log.exception("round_failed", exc_info=ValueError())
    logging.getLogger("a_library.connection").warning("no host %s", "h")

    assert shown == [
        ("warning", "look_missed"),
        ("error", "slot_skipped"),
        ("error", "round_failed"),
        ("warning", "a_library.connection"),
    ]


def test_no_text_of_others_commands_the_terminal_that_shows_the_log() -> None:
    stream = io.StringIO()
    configure_logging("info", stream, form="text")
    log = structlog.get_logger()

    log.warning("host_unreachable", host="h1", error=HOSTILE, names=[HOSTILE])
    log.warning(HOSTILE)
    logging.getLogger("library").warning("%s", HOSTILE)
    log.exception("failed", exc_info=ValueError(HOSTILE))

    written = stream.getvalue()
    assert not [each for each in written if is_forbidden(each) and each != "\n"]
    assert not [line for line in written.splitlines() if line.startswith("fuga: all is well")]
    assert "[bold]x[/bold]" in written
    written.encode()


def test_in_json_every_text_is_itself_and_on_its_line() -> None:
    stream = io.StringIO()
    configure_logging("info", stream)

    structlog.get_logger().warning("host_unreachable", error=HOSTILE)

    (line,) = lines(stream)
    assert line["error"] == HOSTILE
    assert not [each for each in stream.getvalue() if is_forbidden(each) and each not in "\n\x7f"]


@pytest.mark.parametrize("form", ["json", "text"])
def test_lines_that_a_full_disk_takes_not_are_lost_counted_and_said(
    tmp_path: Path, form: LogFormat
) -> None:
    with memory_disk(tmp_path / "logs", mib=1) as disk:
        path = disk.path / "api.log"
        disk.fill(but_bytes=4096)
        with path.open("w") as stream:
            configure_logging("info", stream, form=form)
            log = structlog.get_logger()
            for number in range(100):
                log.info("http_request", number=number, path="/" + "x" * 200)
            logging.getLogger("uvicorn").warning("of a library")
            disk.free()
            log.info("after")

        text = path.read_text().splitlines()
        lost = next(line for line in text if "lost" in line)
        assert "No space left on device" in lost
        kept = sum("number" in line and "xxx" in line for line in text)
        assert re.search(rf"\b{101 - kept}\b|\b{102 - kept}\b", lost)
        assert "after" in text[-1]
        if form == "json":
            assert json.loads(text[-1])["event"] == "after"
            assert json.loads(lost)["level"] == "warning"


def test_a_log_without_a_reader_fails_nothing() -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    with os.fdopen(theirs, "w") as stream:
        configure_logging("info", stream)
        structlog.get_logger().info("unheard")
        logging.getLogger("library").error("unheard")
    structlog.get_logger().info("closed by now")


def test_a_process_without_standard_error_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)

    configure_logging("info")

    structlog.get_logger().info("unheard")
