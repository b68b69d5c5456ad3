"""Login at the site's OpenID Connect provider from a terminal, with PKCE and a browser.

The provider redirects the browser to a temporary port of this machine (RFC 8252), or the user
pastes the address at which the browser ended.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.server
import secrets
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qs, urlencode, urlsplit

from controller.terminal.errors import BadInputError, CliError
from plain_text import plain

#: Time for the user to log in at the provider.
PATIENCE_S: Final = 300.0
_HOST: Final = "127.0.0.1"
_PATH: Final = "/fuga"
_TOO_LATE_S: Final = 10.0  #: time for a browser to send its request
_PAGE: Final = b"""<!doctype html><title>fuga</title>
<p>You can close this page: <code>fuga</code> goes on in its terminal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginAttempt:
    """A login under way: its provider, redirect address, state and PKCE verifier."""

    way: Mapping[str, Any]
    redirect_uri: str
    state: str
    verifier: str

    @classmethod
    def begin(cls, way: Mapping[str, Any], redirect_uri: str) -> LoginAttempt:
        """Begin a login at the provider; refuse one whose endpoint is no web address."""
        endpoint = urlsplit(str(way["authorization_endpoint"]))
        if endpoint.scheme not in ("https", "http") or not endpoint.netloc:
            raise CliError("the API names no web address to log in at")
        return cls(
            way=way,
            redirect_uri=redirect_uri,
            state=secrets.token_urlsafe(16),
            verifier=secrets.token_urlsafe(32),
        )

    @property
    def address(self) -> str:
        """The address at which the browser logs in."""
        endpoint = str(self.way["authorization_endpoint"])
        query = {
            "response_type": "code",
            "client_id": self.way["client_id"],
            "redirect_uri": self.redirect_uri,
            "scope": self.way["scope"],
            "state": self.state,
            "nonce": _challenge_digest(f"nonce.{self.verifier}"),
            "code_challenge": _challenge_digest(self.verifier),
            "code_challenge_method": "S256",
        }
        return endpoint + ("&" if "?" in endpoint else "?") + urlencode(query)

    def exchange_body(self, answer: str, tenant: str | None) -> dict[str, Any]:
        """Return the body of POST /v1/login for the address to which the browser was redirected."""
        given = parse_qs(urlsplit(answer.strip()).query)
        state, code, error = ((given.get(name) or [""])[0] for name in ("state", "code", "error"))
        if not hmac.compare_digest(state.encode(), self.state.encode()):
            raise BadInputError("this is not the answer to this login; begin again")
        if not code:
            raise CliError(f"the provider refused the login ({plain(error)[:40] or 'no reason'})")
        body = {"code": code, "verifier": self.verifier, "redirect_uri": self.redirect_uri}
        return body if tenant is None else {**body, "tenant": tenant}


class CallbackListener:
    """Listens on this machine for the redirected browser, once."""

    def __init__(self) -> None:
        self._answer: str | None = None
        self._state = ""
        self._came = threading.Event()
        self._server = http.server.ThreadingHTTPServer((_HOST, 0), self._handler_class())
        self._server.daemon_threads = True

    @property
    def redirect_uri(self) -> str:
        """The address of this listener, to which the provider redirects the browser."""
        return f"http://{_HOST}:{self._server.server_port}{_PATH}"

    @contextmanager
    def listening(self, state: str) -> Iterator[None]:
        """Accept a redirected browser with the state of this login until the block ends."""
        self._state = state
        thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._server.shutdown()
            self._server.server_close()

    def wait_for_answer(self, patience_s: float = PATIENCE_S) -> str:
        """Wait for the browser, and return the address that it requested."""
        if not self._came.wait(patience_s) or self._answer is None:
            raise CliError(f"no browser came back within {patience_s:g} s; begin again")
        return self._answer

    def _handler_class(self) -> type[http.server.BaseHTTPRequestHandler]:
        """Return the handler of HTTP requests of this listener."""
        listener = self

        class Handler(http.server.BaseHTTPRequestHandler):
            timeout = _TOO_LATE_S
            server_version, sys_version = "fuga", ""

            def do_GET(self) -> None:
                """Accept a request with the state of this login; answer others with 404."""
                ours = listener._accept_answer(self.path)
                self.send_response(200 if ours else 404)
                for name, value in (
                    ("Content-Type", "text/html; charset=utf-8"),
                    ("Content-Security-Policy", "default-src 'none'"),
                    ("Referrer-Policy", "no-referrer"),
                    ("Cache-Control", "no-store"),
                    ("Content-Length", str(len(_PAGE) if ours else 0)),
                ):
                    self.send_header(name, value)
                self.end_headers()
                if ours:
                    self.wfile.write(_PAGE)

            def log_message(self, *_: Any) -> None:
                """Log nothing, because the address contains the code."""

        return Handler

    def _accept_answer(self, path: str) -> bool:
        """Store the path of the first request with the state of this login; refuse others."""
        address = urlsplit(path)
        state = (parse_qs(address.query).get("state") or [""])[0]
        ours = hmac.compare_digest(state.encode(), self._state.encode())
        if address.path != _PATH or not ours or self._came.is_set():
            return False
        self._answer = path
        self._came.set()
        return True


def remote_redirect_uri() -> str:
    """Return a redirect address for a browser on another machine; usually nothing listens there."""
    return f"http://{_HOST}:{49152 + secrets.randbelow(16384)}{_PATH}"


def _challenge_digest(text: str) -> str:
    """Return the unpadded base64url SHA-256 of a text, as PKCE wants it."""
    digest = hashlib.sha256(text.encode()).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
