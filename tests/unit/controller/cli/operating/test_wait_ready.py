"""`fuga wait-ready`: it waits for what starts, and ends at once where nothing can."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from controller.cli.operating import readiness
from tests.fakes.http_api import HttpApi
from tests.servers.ports import a_quiet_port
from tests.unit.controller.cli.api_documents import Fuga

LACKS = {"status": "not_ready", "checks": {"database": {"ok": False, "message": "no answer"}}}


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "_EVERY_S", 0.01)


def test_a_process_that_is_ready_is_said_to_be(api: HttpApi, fuga: Fuga) -> None:
    api.on("GET", "/readyz", {"status": "ok"})

    ended = fuga("wait-ready", "-o", "json")

    assert (ended.status, ended.json) == (0, [{"name": api.url, "ready": True}])


def test_what_a_process_lacks_is_said_until_it_has_it(api: HttpApi, fuga: Fuga) -> None:
    answers: list[tuple[int, Any]] = [(503, LACKS), (503, LACKS), (200, {})]
    api.routes["GET", "/readyz"] = lambda _: answers.pop(0)

    ended = fuga("wait-ready", api.url)

    assert ended.status == 0
    assert ended.out.count("database: no answer") == 1


def test_a_process_that_stays_unready_ends_the_wait_with_what_it_lacks(
    api: HttpApi, fuga: Fuga
) -> None:
    api.on("GET", "/readyz", LACKS, status=503)

    ended = fuga("wait-ready", api.url, "--timeout", "0")

    assert ended.status == 3
    assert "database: no answer" in ended.err
    assert "journalctl" in ended.err


def refused() -> str:
    return f"http://127.0.0.1:{a_quiet_port()}"


def of_settings(_: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setenv("FUGA_SLOT_LENGTH_S", "never")


def of_a_policy(_: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setenv("FUGA_POLICY", "best")


def of_an_old_schema(folder: Path, _: pytest.MonkeyPatch) -> None:
    (folder / "fuga.db").touch()  # no tables


def of_two_heads(folder: Path, patch: pytest.MonkeyPatch) -> None:
    from alembic.util.exc import CommandError

    def two_heads() -> str:
        raise CommandError("The script directory has multiple heads")

    (folder / "fuga.db").touch()
    patch.setattr("registry.admin.upgrade.head_revision", two_heads)


def of_an_import(_: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(readiness, "_MODULES", "controller.rest.nowhere")


def of_a_unit(folder: Path, patch: pytest.MonkeyPatch, name: str = "fuga-api.service") -> None:
    """Stand in for systemd: a unit of three starts, the last words of which are known."""
    shown = f"Id={name}\\nSubState=auto-restart\\nNRestarts=3\\n"
    for program, says in (
        ("systemctl", f"for each; do case {name} in $each) printf '{shown}' ;; esac; done"),
        ("journalctl", "echo fuga: it has no port"),
    ):
        (folder / program).write_text(f"#!/bin/sh\n{says}\n")
        (folder / program).chmod(0o755)
    patch.setenv("PATH", str(folder), prepend=":")


@pytest.mark.parametrize(
    ("crash", "said"),
    [
        (of_settings, "the settings are refused"),
        (of_a_policy, "the settings are refused"),
        (of_an_old_schema, "the database is at revision none"),
        (of_two_heads, "multiple heads"),
        (of_an_import, "No module named 'controller.rest.nowhere'"),
        (of_a_unit, "fuga-api.service ended 3 times: fuga: it has no port; journalctl -u"),
    ],
)
def test_processes_that_cannot_start_end_the_wait_at_once(
    fuga: Fuga, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, crash: Any, said: str
) -> None:
    if crash is not of_an_import:
        monkeypatch.setattr(readiness, "_MODULES", "sys")
    crash(tmp_path, monkeypatch)

    ended = fuga("wait-ready", refused(), "--refused-for", "3600", "--timeout", "3600")

    assert (ended.status, said in ended.err) == (1, True), ended.err


def test_where_nothing_is_found_wrong_a_silent_address_ends_the_wait_with_where_to_look(
    fuga: Fuga, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readiness, "_MODULES", "sys")

    ended = fuga("wait-ready", refused(), "--refused-for", "0.1")

    assert ended.status == 1
    assert "nothing listens there for 0.1 s" in ended.err
    assert "journalctl -u fuga-api" in ended.err


def of_a_backup(folder: Path, patch: pytest.MonkeyPatch) -> None:
    of_a_unit(folder, patch, "fuga-backup.service")


def of_a_unit_without_its_database(folder: Path, patch: pytest.MonkeyPatch) -> None:
    of_a_unit(folder, patch)
    at = f"127.0.0.1:{a_quiet_port()}"
    patch.setenv("FUGA_DATABASE_URL", f"postgresql://fuga@{at}/fuga?connect_timeout=2")


def of_imports_that_take_long(_: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(readiness, "_MODULES", "time; time.sleep(600)")
    patch.setattr(readiness, "_IMPORT_S", 0.2)


@pytest.mark.parametrize(
    "unrelated", [of_a_backup, of_a_unit_without_its_database, of_imports_that_take_long]
)
def test_what_says_nothing_about_processes_ends_no_wait(
    fuga: Fuga, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unrelated: Any
) -> None:
    monkeypatch.setattr(readiness, "_MODULES", "sys")
    unrelated(tmp_path, monkeypatch)

    ended = fuga("wait-ready", refused(), "--refused-for", "0.1")

    assert (ended.status, "nothing listens there for 0.1 s" in ended.err) == (1, True), ended.err


def test_nothing_of_this_machine_is_judged_for_an_address_of_another(
    fuga: Fuga, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_a_unit(tmp_path, monkeypatch)
    monkeypatch.setenv("FUGA_SLOT_LENGTH_S", "never")
    silent = readiness._ReadinessAnswer(False, False, "nothing listens there")
    monkeypatch.setattr(readiness, "_query_readiness", lambda *_: silent)

    ended = fuga("wait-ready", "http://192.0.2.1:8732", "--refused-for", "0.1")

    assert (ended.status, "nothing listens there for 0.1 s" in ended.err) == (1, True), ended.err
    assert readiness._is_this_machine("http://localhost:8732")
    assert readiness._is_this_machine("https://[::]:8732") or readiness._is_this_machine(
        "https://0.0.0.0"
    )


def test_several_addresses_may_stand_in_one_argument(api: HttpApi, fuga: Fuga) -> None:
    api.on("GET", "/readyz", {"status": "ok"})
    both = (api.url, api.url.replace("127.0.0.1", "localhost"))

    ended = fuga("wait-ready", ",".join(both), "--timeout", "9", "-o", "json")

    assert (ended.status, ended.out.count('"ready": true')) == (0, 2), ended.err


def test_everything_that_processes_import_is_there() -> None:
    assert list(readiness._import_errors(time.monotonic() + 600)) == []


def test_imports_take_no_longer_than_the_wait() -> None:
    began = time.monotonic()

    assert list(readiness._import_errors(began - 1)) == []


def test_a_process_that_begins_to_listen_while_it_is_judged_is_ready(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a busy machine judging took longer than silence may last."""
    answers = [readiness._ReadinessAnswer(False, False, "nothing listens there")]
    ready = readiness._ReadinessAnswer(True, True, "ready")
    monkeypatch.setattr(
        readiness, "_query_readiness", lambda *_: answers.pop() if answers else ready
    )
    monkeypatch.setattr(readiness, "_failure_reasons", lambda _: iter(()))

    readiness.wait_until_ready(
        "http://127.0.0.1:1",
        ca=None,
        ends_at=time.monotonic() + 60,
        refused_for_s=0,
        say=lambda _: None,
    )
