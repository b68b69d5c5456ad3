"""`fuga console` at a terminal: what is typed, what is shown, and the terminal given back."""

from __future__ import annotations

import base64
import os
import signal
import termios
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.http_api import Answer, HttpApi, RecordedCall, http_api, problem
from tests.servers.running import eventually
from tests.servers.terminal import Terminal, at_a_terminal

VM_ID = "0193a111-0000-7000-8000-000000000002"
SESSION_ID = "0193a333-0000-7000-8000-000000000004"
CONSOLE = f"/v1/vms/{VM_ID}/console"
SESSION = f"{CONSOLE}/sessions/{SESSION_ID}"


class Guest:
    """An API with one VM, whose console a test speaks for."""

    def __init__(self, api: HttpApi) -> None:
        self.written = b""
        self.state = "attached"
        self.reason: str | None = None
        self.typed: dict[int, bytes] = {}
        self.refusal: Answer | None = None
        self.api = api
        api.on_list("/v1/requests")
        api.on_list("/v1/vms", {"id": VM_ID, "name": "web-1", "desired": "running"})
        api.routes["POST", f"{CONSOLE}/sessions"] = lambda _: (201, self.session())
        api.routes["GET", SESSION] = self._said
        api.routes["DELETE", SESSION] = lambda _: (200, {})
        for number in range(1, 20):
            api.routes["PUT", f"{SESSION}/input/{number}"] = self._type

    def session(self) -> dict[str, Any]:
        return {
            "id": SESSION_ID,
            "vm": VM_ID,
            "state": self.state,
            "reason": self.reason,
            "next_input": 1,
        }

    @property
    def heard(self) -> bytes:
        return b"".join(self.typed[number] for number in sorted(self.typed))

    @property
    def closed(self) -> bool:
        return bool(self.api.calls("DELETE", SESSION))

    def _said(self, asked: RecordedCall) -> Answer:
        after = int(asked.query["after"])
        content = self.written[after:]
        return 200, {
            "session": self.session(),
            "start": after,
            "content": base64.b64encode(content).decode(),
            "end": after + len(content),
        }

    def _type(self, asked: RecordedCall) -> Answer:
        if self.refusal is not None:
            refusal, self.refusal = self.refusal, None
            return refusal
        number = int(asked.path.rpartition("/")[2])
        self.typed[number] = base64.b64decode(asked.body["content"])
        return 200, self.session()


@pytest.fixture
def guest() -> Iterator[Guest]:
    with http_api() as api:
        yield Guest(api)


@contextmanager
def attached(guest: Guest, tmp_path: Path, *words: str) -> Iterator[Terminal]:
    env: Mapping[str, str] = {
        **{key: value for key, value in os.environ.items() if not key.startswith("FUGA_")},
        "FUGA_URL": guest.api.url,
        "FUGA_TOKEN": "secret",
        "FUGA_STATE_DIR": str(tmp_path),
        "TERM": "dumb",
    }
    with at_a_terminal("console", "web-1", *words, env=env) as terminal:
        yield terminal


def test_keys_go_to_the_guest_as_they_are_and_the_escape_ends_it(
    guest: Guest, tmp_path: Path
) -> None:
    with attached(guest, tmp_path) as terminal:
        terminal.until(b"[fuga: attached]")
        assert not terminal.settings()[3] & (termios.ICANON | termios.ECHO | termios.ISIG)
        terminal.type(b"ls\r")
        eventually(lambda: guest.heard == b"ls\r")
        guest.refusal = (409, problem(409, "conflict", "many bytes did not reach the guest yet"))
        terminal.type(b"\x03\x04\x1b[A")
        eventually(lambda: guest.heard == b"ls\r\x03\x04\x1b[A")
        guest.written = b"\x1b[1mbold\x1b[0m\r\n"
        terminal.until(guest.written)
        terminal.type(b"bye\x1dnot this")

        assert terminal.ended() == 0
        assert terminal.settings() == terminal.before

    assert guest.heard == b"ls\r\x03\x04\x1b[Abye"
    assert guest.closed


def test_it_says_when_nobody_holds_the_console_and_why_it_ends(
    guest: Guest, tmp_path: Path
) -> None:
    guest.state = "waiting"
    with attached(guest, tmp_path) as terminal:
        terminal.until(b"Ctrl-]")
        guest.state = "attached"
        terminal.until(b"[fuga: attached]")
        guest.state, guest.reason = "waiting", "its worker is gone"
        terminal.until(b"[fuga: detached: its worker is gone]")
        guest.state, guest.written = "attached", b"back"
        terminal.until(b"back")
        guest.state, guest.reason, guest.written = "ended", "the guest is off", b"back, and gone"

        assert terminal.ended() == 1
        assert terminal.settings() == terminal.before
    assert terminal.shown.count(b"[fuga: attached]") == 2
    assert b", and gone" in terminal.shown
    assert b"fuga: the guest is off" in terminal.shown


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_gives_the_terminal_back(
    guest: Guest, tmp_path: Path, number: signal.Signals
) -> None:
    with attached(guest, tmp_path) as terminal:
        terminal.until(b"[fuga: attached]")
        os.kill(terminal.pid, number)

        assert terminal.ended() == 128 + number
        assert terminal.settings() == terminal.before
    assert guest.closed


def test_an_error_while_typing_gives_the_terminal_back(guest: Guest, tmp_path: Path) -> None:
    with attached(guest, tmp_path) as terminal:
        terminal.until(b"[fuga: attached]")
        guest.refusal = (403, problem(403, "forbidden", "this token was revoked"))
        terminal.type(b"x")

        assert terminal.ended() == 1
        assert terminal.settings() == terminal.before
    assert b"this token was revoked" in terminal.shown


def test_a_console_in_use_is_refused_before_the_terminal_changes(
    guest: Guest, tmp_path: Path
) -> None:
    refusal = (409, problem(409, "conflict", "in use; it can be taken by force"))
    guest.api.routes["POST", f"{CONSOLE}/sessions"] = lambda _: refusal

    with attached(guest, tmp_path) as terminal:
        assert terminal.ended() == 2
        assert b"taken by force" in terminal.shown
        assert b"Ctrl-]" not in terminal.shown
    assert not guest.closed


def test_reading_only_types_nothing(guest: Guest, tmp_path: Path) -> None:
    guest.api.on(
        "GET", CONSOLE, {"vm": VM_ID, "content": base64.b64encode(b"boot").decode(), "end": 4}
    )

    with attached(guest, tmp_path, "--read-only") as terminal:
        terminal.until(b"boot")
        assert terminal.settings()[3] & termios.ICANON
        os.kill(terminal.pid, signal.SIGINT)
        assert terminal.ended() == 0
    assert not guest.api.calls("POST", f"{CONSOLE}/sessions")


def test_force_is_for_typing_alone(guest: Guest, tmp_path: Path) -> None:
    with attached(guest, tmp_path, "--force", "--log") as terminal:
        assert terminal.ended() == 2
    assert b"--force cannot be used with --log" in terminal.shown
