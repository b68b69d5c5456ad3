"""A console session: connects a terminal to a VM's console through the API.

One thread reads what the guest writes; this one types. Each call has a number, so that the guest
reads each key once and in order, even if a call is lost.
"""

from __future__ import annotations

import base64
import contextlib
import os
import select
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from controller.client.errors import ApiError, ApiProblemError, ApiUnreachableError
from controller.terminal.raw_mode import raw_terminal
from plain_text import plain

if TYPE_CHECKING:
    from controller.client.http import Client

#: Ctrl-], as in telnet and virsh.
ESCAPE: Final = b"\x1d"
_PIECE_BYTES: Final = 1024
_WAIT_S: Final = 5.0
_RETRY_S: Final = 0.2
#: How long an API that is away is waited for.
_AWAY_S: Final = 60.0
_CONFLICT: Final = 409
_BUSY: Final = frozenset({429, 503})


class ConsoleSession:
    """Connects this terminal to the serial console of a VM, through the API.

    Parameters
    ----------
    api : Client
        The API.
    path : str
        The path of the VM's console.
    stdin, stdout : int
        The file descriptors of the terminal.
    """

    def __init__(self, api: Client, path: str, *, stdin: int, stdout: int) -> None:
        self._api = api
        self._path = path
        self._stdin, self._stdout = stdin, stdout
        self._over = threading.Event()
        self._reason: str | None = None
        self._woken, self._wake = os.pipe()

    def run(self, *, force: bool) -> str | None:
        """Connect terminal and console until Ctrl-]; return the reason of another end."""
        session = self._api.post(f"{self._path}/sessions", {"force": force})
        path = f"{self._path}/sessions/{session['id']}"
        reader = threading.Thread(target=self._print_output, args=(path,), daemon=True)
        try:
            self._print_notice("press Ctrl-] to leave the console; Enter may show a prompt")
            with raw_terminal(self._stdin):
                reader.start()
                self._forward_keystrokes(path)
        finally:
            self._over.set()
            self._delete_session(path)
            os.write(self._stdout, b"\r\n")
        reader.join(_WAIT_S)
        return self._reason

    def _forward_keystrokes(self, path: str) -> None:
        """Send typed keys to the guest until Ctrl-] or the end of the session."""
        number = 1
        while not self._over.is_set():
            ready, _, _ = select.select([self._stdin, self._woken], [], [])
            if self._stdin not in ready:
                continue
            keys = os.read(self._stdin, _PIECE_BYTES)
            before, escape, _ = keys.partition(ESCAPE)
            if before and self._send_keystrokes(f"{path}/input/{number}", before):
                number += 1
            if escape or not keys:  # nothing: the terminal was closed
                return

    def _send_keystrokes(self, path: str, keys: bytes) -> bool:
        """Send typed keys; retry while the API is away; return whether they arrived."""
        body = {"content": base64.b64encode(keys).decode()}
        since = time.monotonic()
        while not self._over.is_set():
            try:
                self._api.put(path, body)
            except ApiProblemError as error:
                if error.http_status not in _BUSY | {_CONFLICT}:
                    self._end_session(str(error))
                    return False
                # Full or over: the reader finds out.
            except ApiUnreachableError as error:
                if time.monotonic() - since > _AWAY_S:
                    self._end_session(str(error))
                    return False
            else:
                return True
            self._over.wait(_RETRY_S)
        return False

    def _print_output(self, path: str) -> None:
        """Print the guest's output until the session ends."""
        after, last, attached_at = 0, "waiting", time.monotonic()
        while not self._over.is_set():
            sent_at = time.monotonic()
            answer = self._next_output(path, after)
            if answer is None:
                return
            state, reason = answer["session"]["state"], answer["session"]["reason"]
            if (last, state) == ("waiting", "attached"):
                self._print_notice("attached")
            elif (last, state) == ("attached", "waiting"):
                self._print_notice(f"detached: {reason}")
            last = state
            self._write_output(answer, after)
            after = answer["end"]
            if state == "attached":
                attached_at = time.monotonic()
            if state == "ended":
                self._end_session(reason)
            elif time.monotonic() - attached_at > _AWAY_S:
                why = f": {reason}" if reason else ""
                self._end_session(f"no worker attached the console within {_AWAY_S:g} s{why}")
            elif not answer["content"] and time.monotonic() - sent_at < _RETRY_S:
                self._over.wait(_RETRY_S)  # the API has no thread that could wait for us

    def _next_output(self, path: str, after: int) -> dict[str, Any] | None:
        """Return the guest's next output, or None after the end of the session."""
        since = time.monotonic()
        while not self._over.is_set():
            try:
                return self._api.get(path, after=after, wait_s=_WAIT_S)
            except ApiProblemError as error:
                if error.http_status not in _BUSY or time.monotonic() - since > _AWAY_S:
                    self._end_session(str(error))
            except ApiUnreachableError as error:
                if time.monotonic() - since > _AWAY_S:
                    self._end_session(str(error))
            self._over.wait(_RETRY_S)
        return None

    def _write_output(self, answer: dict[str, Any], after: int) -> None:
        if answer["start"] > after:
            self._print_notice(
                f"{answer['start'] - after} bytes arrived too fast and are not shown"
            )
        left = memoryview(base64.b64decode(answer["content"]))
        while left:
            left = left[os.write(self._stdout, left) :]

    def _print_notice(self, words: str) -> None:
        os.write(self._stdout, f"\r\n[fuga: {plain(words)}]\r\n".encode())

    def _end_session(self, reason: str) -> None:
        """End the console session for a reason, which `run` returns."""
        if not self._over.is_set():  # else it ends because the user left it
            self._reason = reason
        self._over.set()
        os.write(self._wake, b".")

    def _delete_session(self, path: str) -> None:
        with contextlib.suppress(ApiError):  # it ends by itself when no call comes
            self._api.delete(path)
