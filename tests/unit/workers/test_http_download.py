"""Downloads of images by HTTPS: whose certificates are accepted."""

from __future__ import annotations

import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.servers.certificates import Authority
from workers.errors import FetchFailedError
from workers.http_download import DownloadTimeouts, download


class Content(BaseHTTPRequestHandler):
    """Answer each GET with three bytes."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "3")
        self.end_headers()
        self.wfile.write(b"abc")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Print nothing."""


def test_a_server_is_trusted_by_the_authorities_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority.make(tmp_path / "site")
    pair = authority.server()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    patience = DownloadTimeouts(
        piece_s=60, whole_s=60, announce=lambda _: None, check=lambda _: None
    )
    came: list[bytes] = []
    with ThreadingHTTPServer(("127.0.0.1", 0), Content) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        prefix = f"https://127.0.0.1:{server.server_address[1]}/"

        with pytest.raises(FetchFailedError, match="certificate verify failed"):
            download(f"{prefix}image", [prefix], came.append, patience)
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.certificate))
        download(f"{prefix}image", [prefix], came.append, patience)
        server.shutdown()

    assert b"".join(came) == b"abc"
