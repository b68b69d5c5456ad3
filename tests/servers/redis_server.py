"""A Redis server for a test: one that can hang, go, and come back at the same address."""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.servers.ports import a_quiet_port
from tests.servers.running import eventually

NEEDS_REDIS = pytest.mark.skipif(
    shutil.which("redis-server") is None, reason="no redis-server here"
)
#: Only against a hang: processes start slowly on a busy machine.
PATIENCE_S = 600.0


@dataclass(frozen=True)
class RedisServer:
    """A running server that keeps nothing on disk."""

    process: subprocess.Popen[bytes]
    url: str

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Have it hang: its port takes connections, and nobody answers them."""
        self.process.send_signal(signal.SIGSTOP)
        state = Path(f"/proc/{self.process.pid}/stat")
        eventually(lambda: state.read_text().rpartition(")")[2].split()[0] == "T", every_s=0.01)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)


@contextmanager
def redis_server(folder: Path, port: int | None = None) -> Iterator[RedisServer]:
    """Start one and hand it out; kill it at the end."""
    port, log = port or a_quiet_port(), folder / "redis.log"
    command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder)]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, "--save", "", "--appendonly", "no"],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        eventually(lambda: "Ready to accept connections" in log.read_text(), within_s=PATIENCE_S)
        yield RedisServer(process, f"redis://127.0.0.1:{port}/0")
    finally:
        process.kill()
        process.wait()
