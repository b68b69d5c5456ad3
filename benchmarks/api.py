"""Print how many requests for VMs two API processes accept in a second, and how long one waits.

    python -m benchmarks.api [--seconds 3] [--before 0,5000] [--connections 1,2,4,8,16,32]

Two processes of `fuga api` on a PostgreSQL of their own (fsync on), and callers who share
the same processors: each connection asks for a VM with an Idempotency-Key of its own, waits
for the answer, and asks again. For comparison, in the same run and by the same callers, a bare
endpoint of the same framework in two processes: it reads the same body by the same model
and answers 201, and there is nobody to know, nothing to write and nothing to log. ``one
row`` is that endpoint with one more statement, which writes the body to a table of the
same server and waits for its disk: less no accepted request can cost that is committed by
itself. ``of bare`` and ``of row`` are ratios of requests a second. Growth shows in the
rows: more connections, and more requests in the register center before. ``ms of CPU`` is
the processor time for one request, of the API's processes, of PostgreSQL's and of the
callers.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import psycopg
import uvicorn
from fastapi import FastAPI

from benchmarks.kit import a_register, parser, unless
from benchmarks.processor import family_cpu_s
from controller.rest.schemas.requests import RequestInput
from controller.rest.server import open_listener
from registry import Registry
from tests.chaos.processes import Managed, fuga_command, inherited
from tests.register import add_request, add_tenant, add_vm_type
from tests.servers.ports import a_quiet_port
from tests.servers.postgres import why_not

PROCESSES: Final = 2
TENANTS: Final = ("a", "b", "c", "d")
#: What two processes should accept at least: a second, and of the bare endpoint.
TARGET_PER_S: Final = 250
TARGET_OF_BARE: Final = 0.4
BODY: Final = json.dumps({"vm_type": "small", "count": 1}).encode()
READY: Final = "api_started"


@dataclass(frozen=True)
class ApiFigures:
    """The measured figures of the callers."""

    per_s: float
    p50_ms: float
    p99_ms: float
    cpu_ms: tuple[float, ...]  #: of a request: API, database, callers


@dataclass(frozen=True)
class ServedApi:
    """The endpoint to call, and the processes that serve it."""

    ports: Sequence[int]
    tokens: Sequence[str]
    processes: Sequence[int]
    database: int | None = None  #: PostgreSQL's first process


@unless(why_not)
def main(argv: Sequence[str] | None = None) -> None:
    arguments = parser(
        __doc__,
        seconds=(3.0, "of each measurement"),
        before=([0, 5000], "requests that are there before"),
        connections=([1, 2, 4, 8, 16, 32], "callers at a time"),
    )
    # Serve it at this port, with a row in this database for each call.
    arguments.add_argument("--bare", type=int, help=argparse.SUPPRESS)
    arguments.add_argument("--database", help=argparse.SUPPRESS)
    given = arguments.parse_args(argv)
    if given.bare is not None:
        serve_bare(given.bare, given.database)
        return
    connections = given.connections
    print(
        f"{PROCESSES} processes, {given.seconds:g} s each; at least {TARGET_PER_S}/s"
        f" and {TARGET_OF_BARE} of bare are wanted"
    )
    print(
        f"{'endpoint':<12}{'before':>9}{'callers':>9}{'per second':>12}{'of bare':>9}"
        f"{'of row':>9}{'p50 ms':>9}{'p99 ms':>9}{'ms of CPU: API, database, callers':>36}"
    )
    bare: dict[int, float] = {}
    row: dict[int, float] = {}
    with tempfile.TemporaryDirectory(prefix="fuga-bench-") as folder:
        with bare_served(Path(folder)) as served:
            for callers in connections:
                seen = measured(served, callers, given.seconds)
                bare[callers] = seen.per_s
                show("bare", 0, callers, seen)
        with one_row_served(Path(folder)) as served:
            for callers in connections:
                seen = measured(served, callers, given.seconds)
                row[callers] = seen.per_s
                show("one row", 0, callers, seen, bare[callers])
        for before in given.before:
            with fuga_served(Path(folder), before) as served:
                for callers in connections:
                    seen = measured(served, callers, given.seconds)
                    show("fuga api", before, callers, seen, bare[callers], row[callers])


def show(name: str, before: int, callers: int, seen: ApiFigures, *others_per_s: float) -> None:
    ratios = [f"{seen.per_s / other:.2f}" for other in others_per_s]
    bare, row = (*ratios, "-", "-")[:2]
    print(
        f"{name:<12}{before:>9,}{callers:>9}{seen.per_s:>12,.0f}{bare:>9}{row:>9}"
        f"{seen.p50_ms:>9.1f}{seen.p99_ms:>9.1f}{'':>12}"
        + "".join(f"{each:>8.2f}" for each in seen.cpu_ms),
        flush=True,
    )


def serve_bare(port: int, database: str | None) -> None:
    """Serve the bare endpoint for comparison until killed; a given database gets a row per call."""
    app = FastAPI(docs_url=None, redoc_url=None)
    own = threading.local()

    @app.post("/v1/requests", status_code=201)
    def ask_for_vms(body: RequestInput) -> dict[str, str]:
        key = uuid.uuid4()
        if database is not None:
            if not hasattr(own, "connection"):
                own.connection = psycopg.connect(database, autocommit=True)
            row = (key, body.model_dump_json())
            own.connection.execute("INSERT INTO asked (id, body) VALUES (%s, %s)", row)
        return {"id": str(key), "vm_type": body.vm_type}

    config = uvicorn.Config(app, log_config=None, access_log=False, lifespan="off")
    listener = open_listener(f"127.0.0.1:{port}")
    print(READY, flush=True)
    uvicorn.Server(config).run(sockets=[listener])


@contextmanager
def one_row_served(folder: Path) -> Iterator[ServedApi]:
    """Serve the bare endpoint, which inserts a row for each call."""
    with a_register() as (server, url):
        plain = url.replace("postgresql+psycopg", "postgresql")
        with psycopg.connect(plain, autocommit=True) as connection:
            connection.execute("CREATE TABLE asked (id uuid PRIMARY KEY, body text NOT NULL)")
        with bare_served(folder, plain) as served:
            yield replace(served, database=server.pid)


@contextmanager
def bare_served(folder: Path, database: str | None = None) -> Iterator[ServedApi]:
    """Serve the bare endpoint in as many processes as the API has."""
    with_rows = [] if database is None else ["--database", database]
    ports = [a_quiet_port() for _ in range(PROCESSES)]
    processes = [
        Managed(
            f"bare-{port}",
            [sys.executable, "-m", "benchmarks.api", "--bare", str(port), *with_rows],
            folder / f"bare-{port}.log",
            env=inherited(),
            ready=READY,
        )
        for port in ports
    ]
    with _running(processes):
        yield ServedApi(ports, ["-"], [process.pid for process in processes])


@contextmanager
def fuga_served(folder: Path, before: int) -> Iterator[ServedApi]:
    """Serve the API on a database that already has ``before`` requests."""
    with a_register() as (server, url):
        registry = Registry.connect(url)
        add_vm_type(registry)
        tokens = []
        for tenant in TENANTS:
            add_tenant(registry, tenant)
            _, secret = registry.tokens.create("tenant", tenant, f"bench-{tenant}", actor="cli")
            tokens.append(secret)
        for number in range(before):
            add_request(registry, tenant=TENANTS[number % len(TENANTS)])
        registry.close()
        ports = [a_quiet_port() for _ in range(PROCESSES)]
        env = {
            **inherited(),
            "FUGA_STATE_DIR": str(folder),
            "FUGA_DATABASE_URL": url,
            "FUGA_RATE_LIMIT_PER_S": "0",  # four tenants ask as often as hundreds would
            "FUGA_METRICS_LISTEN": "127.0.0.1:0",
        }
        processes = [
            Managed(
                f"api-{port}",
                fuga_command("api"),
                folder / f"api-{port}.log",
                env={**env, "FUGA_LISTEN": f"127.0.0.1:{port}"},
                ready=READY,
            )
            for port in ports
        ]
        with _running(processes):
            pids = [process.pid for process in processes]
            yield ServedApi(ports, tokens, pids, server.pid)


@contextmanager
def _running(processes: Sequence[Managed]) -> Iterator[None]:
    try:
        for process in processes:
            process.start()
        for process in processes:
            process.wait_until_ready()
        yield
    finally:
        for process in processes:
            process.close()


def measured(served: ServedApi, callers: int, seconds: float) -> ApiFigures:
    """Let callers send requests for some seconds, after a warm-up that does not count."""
    ports, tokens = served.ports, served.tokens
    asyncio.run(_ask(ports, tokens, callers, min(1.0, seconds / 5)))
    before = _cpu_s(served)
    started = time.perf_counter()
    times = asyncio.run(_ask(ports, tokens, callers, seconds))
    took = time.perf_counter() - started
    after = _cpu_s(served)
    centiles = statistics.quantiles(times, n=100)
    return ApiFigures(
        per_s=len(times) / took,
        p50_ms=centiles[49] * 1e3,
        p99_ms=centiles[98] * 1e3,
        cpu_ms=tuple((b - a) / len(times) * 1e3 for a, b in zip(before, after, strict=True)),
    )


async def _ask(
    ports: Sequence[int], tokens: Sequence[str], callers: int, seconds: float
) -> list[float]:
    until = time.perf_counter() + seconds
    each = (
        _caller(ports[number % len(ports)], tokens[number % len(tokens)], until)
        for number in range(callers)
    )
    return [took for times in await asyncio.gather(*each) for took in times]


async def _caller(port: int, token: str, until: float) -> list[float]:
    """Send requests on one connection; return the seconds of each answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = (
        f"POST /v1/requests HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(BODY)}\r\nIdempotency-Key: "
    ).encode()
    times = []
    while (started := time.perf_counter()) < until:
        writer.write(head + uuid.uuid4().hex.encode() + b"\r\n\r\n" + BODY)
        answer = await reader.readuntil(b"\r\n\r\n")
        length = next(
            int(line.partition(b":")[2])
            for line in answer.split(b"\r\n")
            if line.lower().startswith(b"content-length:")
        )
        body = await reader.readexactly(length)
        if b" 201 " not in answer.partition(b"\r\n")[0]:
            raise RuntimeError(f"not accepted: {answer.decode()}{body.decode()}")
        times.append(time.perf_counter() - started)
    writer.close()
    await writer.wait_closed()
    return times


def _cpu_s(served: ServedApi) -> tuple[float, float, float]:
    """Return the processor time so far of the API, the database and the callers."""
    database = 0.0 if served.database is None else family_cpu_s(served.database)
    return sum(map(family_cpu_s, served.processes)), database, time.process_time()


if __name__ == "__main__":
    main()
