"""A small HTTP listener in a thread of its own: /healthz, /readyz and /metrics.

It requires no token, so it should listen on loopback, a Unix socket or a separate network.
"""

from __future__ import annotations

import json
import socket
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import TCPServer
from typing import Any, Final

import structlog

from registry import RegistryError
from service.health import Readiness
from service.metrics import CONTENT_TYPE, ProcessMetrics
from service.socket_addresses import UNIX, split_address

log: Final = structlog.get_logger(__name__)

_CLIENT_TIMEOUT_S: Final = 10
_SOCKET_MODE: Final = 0o660


class ListenerError(RegistryError):
    """The process cannot listen on the address."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"FUGA_METRICS_LISTEN: cannot listen on {address}: {reason}")
        self.address = address


class _ListenerServer(ThreadingHTTPServer):
    """The HTTP server of /healthz, /readyz and /metrics, on IPv4."""

    daemon_threads = True
    ready: Readiness
    metrics: Callable[[], bytes]

    def handle_error(self, request: object, client_address: object) -> None:
        """Log the error of a call for health or metrics, except of a caller that went away."""
        if not isinstance(sys.exception(), ConnectionError):
            log.exception("metrics_call_failed")


class _Ip6Server(_ListenerServer):
    """The HTTP server of health and metrics, on IPv6."""

    address_family = socket.AF_INET6


class _UnixServer(_ListenerServer):
    """The HTTP server of health and metrics, on a Unix socket."""

    address_family = socket.AF_UNIX

    def server_bind(self) -> None:
        """Bind the server to its Unix socket, which has no host and port."""
        TCPServer.server_bind(self)  # HTTPServer's wants a host and a port
        self.server_name, self.server_port = "localhost", 0


class _HealthHandler(BaseHTTPRequestHandler):
    """Answers calls for health, readiness and metrics."""

    server: _ListenerServer
    timeout = _CLIENT_TIMEOUT_S
    server_version = "fuga"
    sys_version = ""

    def do_GET(self) -> None:
        """Answer a call for health, readiness or metrics."""
        path = self.path.partition("?")[0]
        if path == "/healthz":
            self._send_json(HTTPStatus.OK, {"status": "ok"})
        elif path == "/readyz":
            checks = self.server.ready()
            well = all(check.well for check in checks)
            status = HTTPStatus.OK if well else HTTPStatus.SERVICE_UNAVAILABLE
            body = {each.name: {"ok": each.well, "message": each.message} for each in checks}
            self._send_json(status, {"status": "ok" if well else "not_ready", "checks": body})
        elif path == "/metrics":
            self._send_answer(HTTPStatus.OK, self.server.metrics(), CONTENT_TYPE)
        else:
            paths = ["/healthz", "/readyz", "/metrics"]
            self._send_json(HTTPStatus.NOT_FOUND, {"status": "not_found", "paths": paths})

    def _send_json(self, status: HTTPStatus, document: dict[str, Any]) -> None:
        """Send an answer about health or readiness as JSON."""
        self._send_answer(status, json.dumps(document).encode() + b"\n", "application/json")

    def _send_answer(self, status: HTTPStatus, body: bytes, content_type: str) -> None:
        """Send the answer to a call for health or metrics, which no cache keeps."""
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is the library's
        """Log no calls: they come every few seconds."""


class HttpListener:
    """Listens from its creation until it is closed, in separate threads."""

    def __init__(self, address: str, *, ready: Readiness, metrics: Callable[[], bytes]) -> None:
        self._socket_file: Path | None = None
        try:
            self._server = self._bind_server(address)
        except OSError as error:
            raise ListenerError(address, error.strerror or str(error)) from error
        self._server.ready = ready
        self._server.metrics = metrics
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="metrics", daemon=True
        )
        self._thread.start()

    @property
    def address(self) -> str:
        """The listener's address in the form of its setting, with the actual port for 0."""
        if self._socket_file is not None:
            return f"{UNIX}{self._socket_file}"
        host, port = self._server.server_address[:2]
        return f"[{host!s}]:{port}" if ":" in str(host) else f"{host!s}:{port}"

    def close(self) -> None:
        """Stop listening for calls for health and metrics."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        if self._socket_file is not None:
            self._socket_file.unlink(missing_ok=True)

    def _bind_server(self, address: str) -> _ListenerServer:
        """Return a server that listens on the address: IPv4, IPv6 or a Unix socket."""
        if address.startswith(UNIX):
            path = Path(address.removeprefix(UNIX)).absolute()
            _remove_stale_socket(path, address)
            unix = _UnixServer(str(path), _HealthHandler)  # type: ignore[arg-type]  # typed for IP alone
            path.chmod(_SOCKET_MODE)
            self._socket_file = path
            return unix
        try:
            host, port = split_address(address)
        except ValueError:
            raise ListenerError(address, "wanted host:port or unix:PATH") from None
        return (_Ip6Server if ":" in host else _ListenerServer)((host, port), _HealthHandler)


@contextmanager
def listening(
    address: str | None, metrics: ProcessMetrics, *, ready: Readiness
) -> Iterator[HttpListener | None]:
    """Serve health and metrics on an address, if one is given, until the block ends."""
    if address is None:
        yield None
        return
    listener = HttpListener(address, ready=ready, metrics=metrics.text)
    log.info("metrics_listening", address=listener.address)
    try:
        yield listener
    finally:
        listener.close()


def _remove_stale_socket(path: Path, address: str) -> None:
    """Remove the socket of a killed process; a socket in use is an error."""
    if not path.exists():
        return
    if not stat.S_ISSOCK(path.stat().st_mode):
        raise ListenerError(address, "a file of that name exists and is not a socket")
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
            return
    raise ListenerError(address, "another process listens there")
