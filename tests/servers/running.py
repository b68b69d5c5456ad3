"""A whole fuga, started the way a person starts it, for suites that look from outside."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import httpx

T = TypeVar("T")
FUGA = str(Path(sys.executable).with_name("fuga"))
START_TIME_S = 180.0


class TimedOutError(AssertionError):
    """What a suite waited for did not come."""


def eventually(look: Callable[[], T], *, within_s: float = 90.0, every_s: float = 0.2) -> T:
    """Return what ``look`` returns once that is true; fail with what it last saw."""
    deadline = time.monotonic() + within_s
    while True:
        seen = look()
        if seen:
            return seen
        if time.monotonic() > deadline:
            raise TimedOutError(f"after {within_s} s still {seen!r}")
        time.sleep(every_s)


class RunningFuga:
    """`fuga up` with a state folder and a port of its own."""

    def __init__(
        self, state_dir: Path, *, arguments: tuple[str, ...] = (), env: dict[str, str] | None = None
    ) -> None:
        self.state_dir = state_dir
        self._arguments = arguments
        self._env = env or {}
        self._up: subprocess.Popen[bytes] | None = None
        self._started_at = 0  #: in the output, so that an earlier start's words do not count

    @property
    def database(self) -> Path:
        return self.state_dir / "fuga.db"

    def environment(self) -> dict[str, str]:
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("FUGA_")}
        return {**inherited, "FUGA_STATE_DIR": str(self.state_dir), **self._env}

    def start(self, **env: str) -> None:
        """Start it and wait until it serves; again after `stop` or a kill."""
        self.state_dir.mkdir(parents=True, exist_ok=True)
        output = (self.state_dir / "up.out").open("ab")
        self._started_at = output.tell()
        self._up = subprocess.Popen(
            [FUGA, "up", "--port", "0", *self._arguments],
            env={**self.environment(), **env},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        output.close()

    def wait_until_served(self) -> None:
        def served() -> bool:
            assert self._up is not None
            assert self._up.poll() is None, self.output_since_start()
            return "fuga request" in self.output_since_start()

        eventually(served, within_s=START_TIME_S)

    def output(self) -> str:
        return (self.state_dir / "up.out").read_text(errors="replace")

    def output_since_start(self) -> str:
        with (self.state_dir / "up.out").open("rb") as output:
            output.seek(self._started_at)
            return output.read().decode(errors="replace")

    def credentials(self) -> dict[str, Any]:
        return json.loads((self.state_dir / "credentials.json").read_text())

    def client(self, tenant: str | None = None) -> httpx.Client:
        known = self.credentials()
        token = known["tenants"][tenant] if tenant else known["operator"]
        return httpx.Client(
            base_url=known["url"], headers={"Authorization": f"Bearer {token}"}, timeout=30
        )

    def cli(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [FUGA, *words], env=self.environment(), capture_output=True, text=True, check=False
        )
        if check:
            assert done.returncode == 0, f"fuga {' '.join(words)}: {done.stdout}{done.stderr}"
        return done

    def sql(self, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Raw SQL, around all of our code, read only."""
        with closing(sqlite3.connect(f"file:{self.database}?mode=ro", uri=True)) as connection:
            return connection.execute(query, parameters).fetchall()

    def interrupt(self) -> int:
        """Ctrl-C; return the exit status."""
        assert self._up is not None
        self._up.send_signal(signal.SIGINT)
        return self._up.wait(60)

    def down(self, *, purge: bool = True) -> None:
        if self._up is not None and self._up.poll() is None:
            self._up.send_signal(signal.SIGINT)
            try:
                self._up.wait(60)
            except subprocess.TimeoutExpired:
                self._up.kill()
                self._up.wait()
        if self.state_dir.exists():
            self.cli("down", *(["--purge"] if purge else []))


@contextmanager
def running_fuga(state_dir: Path, *arguments: str, **env: str) -> Iterator[RunningFuga]:
    """Start, hand out, end; nothing is left running."""
    fuga = RunningFuga(state_dir, arguments=arguments, env=env)
    try:
        fuga.start()
        fuga.wait_until_served()
        yield fuga
    finally:
        fuga.down()
