"""Read the API's pages and run every process of a site until it is ready.

Run by scripts/check-wheel, by the Python of the environment that it judges: on SQLite, with
the broker of folders, no host and nothing but the packages of runtime.lock.
"""

from __future__ import annotations

import http.client
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from controller.rest.pages.docs import read_asset
from controller.rest.pages.web import WEB_PATH, web_pages

FUGA = str(Path(sys.executable).with_name("fuga"))
PROCESSES = ("api", "control", "monitor", "worker")
PATIENCE_S = 120.0


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a socket in the file system."""

    def connect(self) -> None:
        """Open the socket that the host's name is the path of."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(5)
        self.sock.connect(self.host)


def main() -> int:
    """Return 1 if a page's file is missing, or a process ends or is not ready in time."""
    read_asset("swagger-ui.css")
    if WEB_PATH not in web_pages():
        print("the wheel has no web console", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder)
        environ = {
            **os.environ,
            "FUGA_STATE_DIR": folder,
            "FUGA_LISTEN": "127.0.0.1:0",
            "FUGA_METRICS_LISTEN": f"unix:{folder}/{{process}}.sock",
        }
        subprocess.run([FUGA, "db", "upgrade"], env=environ, check=True)
        started = {name: start_process(name, state, environ) for name in PROCESSES}
        try:
            return (
                0
                if all(wait_until_ready(name, child, state) for name, child in started.items())
                else 1
            )
        finally:
            for child in started.values():
                child.terminate()
            for child in started.values():
                child.wait(timeout=60)


def start_process(name: str, state: Path, environ: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start one process with its output in a file."""
    with (state / f"{name}.log").open("wb") as log:
        return subprocess.Popen([FUGA, name], env=environ, stdout=log, stderr=log)


def wait_until_ready(name: str, child: subprocess.Popen[bytes], state: Path) -> bool:
    """Wait until a process is ready; print its log if it never is."""
    end = time.monotonic() + PATIENCE_S
    status = "nothing"
    while child.poll() is None and time.monotonic() < end:
        try:
            with closing(UnixConnection(f"{state}/{name}.sock")) as connection:
                connection.request("GET", "/readyz", headers={"Host": "localhost"})
                answer = connection.getresponse()
                status = answer.read().decode()
            if answer.status == 200:
                print(f"fuga {name} is ready")
                return True
        except OSError:
            pass
        time.sleep(0.2)
    print(
        f"fuga {name} is not ready, its status: {child.poll()}; it said {status}", file=sys.stderr
    )
    print((state / f"{name}.log").read_text(), file=sys.stderr)
    return False


if __name__ == "__main__":
    sys.exit(main())
