"""A worker whose Redis goes is not ready, lives on, and is ready again when it is back."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.integration.worker_site import open_site
from tests.ports import a_quiet_port
from tests.running import eventually

pytestmark = [
    pytest.mark.sqlite,
    pytest.mark.skipif(shutil.which("redis-server") is None, reason="no redis-server here"),
]

#: A new process, and pauses between its tries, on a machine with other work.
PATIENCE_S = 600.0


@contextmanager
def redis(port: int, folder: Path) -> Iterator[None]:
    command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder)]
    process = subprocess.Popen(
        [*command, "--save", "", "--appendonly", "no"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        process.kill()
        process.wait()


def test_a_worker_without_its_broker_is_not_ready_until_it_is_back(tmp_path: Path) -> None:
    port, socket = a_quiet_port(), tmp_path / "worker.sock"
    transport = httpx.HTTPTransport(uds=str(socket))

    def broker() -> tuple[int, str]:
        try:
            answer = asking.get("/readyz")
        except httpx.TransportError:
            return 0, "no listener"
        return answer.status_code, answer.json()["checks"]["broker"]["message"]

    with (
        open_site(tmp_path) as site,
        httpx.Client(transport=transport, base_url="http://worker", timeout=60) as asking,
    ):
        with redis(port, tmp_path):
            worker = site.start(
                "workers",
                FUGA_BROKER_URL=f"redis://127.0.0.1:{port}/0",
                FUGA_METRICS_LISTEN=f"unix:{socket}",
            )
            eventually(lambda: broker()[0] == 200, within_s=PATIENCE_S)

        _, message = eventually(lambda: (seen := broker())[0] == 503 and seen, within_s=PATIENCE_S)
        assert message in ("it does not answer", "this worker is not connected to it")
        assert asking.get("/healthz").status_code == 200

        with redis(port, tmp_path):
            eventually(lambda: broker()[0] == 200, within_s=PATIENCE_S)
        assert worker.process.poll() is None
