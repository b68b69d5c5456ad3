"""A worker whose Redis goes or hangs is not ready, lives on, and is ready when it is back."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from tests.integration.workers.site import open_site
from tests.servers.ports import a_quiet_port
from tests.servers.redis_server import NEEDS_REDIS, PATIENCE_S, redis_server
from tests.servers.running import eventually

pytestmark = [pytest.mark.sqlite, NEEDS_REDIS]


def test_a_worker_without_its_broker_is_not_ready_until_it_is_back(tmp_path: Path) -> None:
    port, socket = a_quiet_port(), tmp_path / "worker.sock"
    transport = httpx.HTTPTransport(uds=str(socket))

    def ready() -> tuple[int, str]:
        try:
            answer = asking.get("/readyz")
        except httpx.TransportError:
            return 0, "no listener"
        return answer.status_code, answer.json()["checks"]["broker"]["message"]

    def assert_not_ready() -> None:
        _, message = eventually(lambda: (seen := ready())[0] == 503 and seen, within_s=PATIENCE_S)
        assert message in ("it does not answer", "this worker is not connected to it")
        assert asking.get("/healthz").status_code == 200

    with (
        open_site(tmp_path) as site,
        httpx.Client(transport=transport, base_url="http://worker", timeout=60) as asking,
    ):
        with redis_server(tmp_path, port) as broker:
            worker = site.start(
                "workers",
                FUGA_BROKER_URL=f"redis://127.0.0.1:{port}/0",
                FUGA_METRICS_LISTEN=f"unix:{socket}",
            )
            eventually(lambda: ready()[0] == 200, within_s=PATIENCE_S)
            with broker.stopped():
                assert_not_ready()
            eventually(lambda: ready()[0] == 200, within_s=PATIENCE_S)

        assert_not_ready()
        with redis_server(tmp_path, port):
            eventually(lambda: ready()[0] == 200, within_s=PATIENCE_S)
        assert worker.process.poll() is None
