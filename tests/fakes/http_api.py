"""An HTTP server that answers as it is told and remembers what it was asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

Answer = tuple[int, Any]


@dataclass(frozen=True)
class RecordedCall:
    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: Any


@dataclass
class HttpApi:
    """Routes by method and path; a path without a route is a 404 problem."""

    url: str = ""
    routes: dict[tuple[str, str], Callable[[RecordedCall], Answer]] = field(default_factory=dict)
    asked: list[RecordedCall] = field(default_factory=list)

    def on(self, method: str, path: str, *answers: Any, status: int = 200) -> None:
        """Give these answers one after the other, the last for ever."""
        left = list(answers)

        def answer(_asked: RecordedCall) -> Answer:
            return status, left.pop(0) if len(left) > 1 else left[0]

        self.routes[method, path] = answer

    def on_list(self, path: str, *items: Any) -> None:
        """Answer a list's only page, filtered by name where that is asked for."""

        def answer(requested: RecordedCall) -> Answer:
            name = requested.query.get("name")
            found = [it for it in items if name is None or it["name"] == name]
            return 200, {"items": found, "next": None}

        self.routes["GET", path] = answer

    def answer(self, asked: RecordedCall) -> Answer:
        self.asked.append(asked)
        route = self.routes.get((asked.method, asked.path))
        if route is None:
            return 404, problem(404, "not_found", f"no {asked.path}")
        return route(asked)

    def calls(self, method: str, path: str) -> list[RecordedCall]:
        return [each for each in self.asked if (each.method, each.path) == (method, path)]


def problem(status: int, code: str, detail: str, *errors: Any) -> dict[str, Any]:
    return {
        "type": f"https://fuga.invalid/problems/{code}",
        "title": code,
        "status": status,
        "detail": detail,
        "code": code,
        "errors": list(errors),
    }


@contextmanager
def http_api() -> Iterator[HttpApi]:
    """Serve on a free port of this machine."""
    api = HttpApi()

    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            parts = urlsplit(self.path)
            length = int(self.headers.get("Content-Length") or 0)
            sent = self.rfile.read(length)
            as_bytes = self.headers.get("Content-Type") == "application/octet-stream"
            body = sent if as_bytes else json.loads(sent) if length else None
            status, answer = api.answer(
                RecordedCall(
                    self.command, parts.path, dict(parse_qsl(parts.query)), dict(self.headers), body
                )
            )
            content = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve  # noqa: N815 - the base class's names

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    api.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield api
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
