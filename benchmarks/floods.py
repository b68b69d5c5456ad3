"""Print what honest callers wait for while a stranger floods the API, and without it.

    python -m benchmarks.floods [--seconds 5] [--floods brackets,heads,...]

One process of `fuga api` with its usual limits, on a PostgreSQL of its own. Twenty callers,
each from an address of its own, read their requests ten times a second all together; one
process floods from another address at the same time, on the same two processors:

brackets     4 connections POST 256 KiB of brackets to /healthz
heads        1,100 connections send half a head and wait, again and again
bodies       150 connections with a good token send half a body and wait
openapi      4 connections fetch /openapi.json
script       4 connections fetch the longest file of /docs, 1.7 MB
unread       150 connections ask for the same and take nothing of it
guesses      4 connections read with tokens that nobody has
refusals     4 connections with a good token ask for what is refused
connections  connects, and closes, as fast as one process can
chunks       4 connections POST a body in chunks of one byte, answered before it ends
extensions   the same, with 1 KiB of extension for each chunk
slow         480 connections of 3 addresses with a good token send a byte of a body each second
idle         1,000 connections of 5 addresses ask once, and then keep their connection
capacity     16 connections with a good token ask how many VMs would fit
search       16 connections with a good token look for a letter in 500 requests
events       16 connections with a good token list 500 events
query        16 connections send a query of 60 KB
lines        16 connections send a head of 3,000 lines
trailers     16 connections POST a body whose trailers are 3,000 lines
pipelined    16 connections send 400 calls of /openapi.json before they read an answer
drip         150 connections send a line of a head ten times a second

``ratio`` is of the medians; at most 3 is wanted. A flood is measured between two times of
calm, whose medians are averaged: whatever else the machine does is in both.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import secrets
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.kit import a_register, parser, unless
from registry import Registry
from tests.chaos.processes import Managed, fuga_command, inherited
from tests.register import a_cluster, add_request, add_tenant
from tests.servers.ports import a_quiet_port
from tests.servers.postgres import why_not

CALLERS: Final = 20
PAUSE_S: Final = 2.0
TARGET: Final = 3.0
READY: Final = "api_started"
ATTACKER: Final = "127.0.0.2"
#: Of floods that come from several.
ATTACKERS: Final = tuple(f"127.0.0.{number}" for number in range(2, 7))
JSON: Final = "Content-Type: application/json\r\n"
BRACKETS: Final = b"[" + b"[]," * (85 * 1024) + b"[]]"
#: How long a connection takes nothing before it starts over.
UNREAD_S: Final = 5.0


#: Floods by one connection, to a port, with a token.
Flood = Callable[[int, str], Awaitable[None]]


@dataclass(frozen=True)
class FloodedApi:
    """An API, and tokens of two tenants."""

    port: int
    honest: str
    attacker: str
    log: Path


@unless(why_not)
def main(argv: Sequence[str] | None = None) -> None:
    arguments = parser(
        __doc__,
        seconds=(5.0, "of each measurement"),
        floods=([*FLOODS], "which, with commas between"),
    )
    # Be the attacker: flood this port until stopped.
    arguments.add_argument("--attack", help=argparse.SUPPRESS)
    arguments.add_argument("--port", type=int, help=argparse.SUPPRESS)
    given = arguments.parse_args(argv)
    if given.attack is not None:
        asyncio.run(_attack(given.attack, given.port, os.environ["FUGA_TOKEN"]))
        return
    print(f"{CALLERS} honest callers, {given.seconds:g} s each; a ratio of {TARGET:g} is wanted")
    print(
        f"{'flood':<13}{'calm p50 ms':>13}{'p99':>9}{'flood p50 ms':>14}{'p99':>9}"
        f"{'ratio':>8}{'lost':>6}{'log lines':>11}"
    )
    with tempfile.TemporaryDirectory(prefix="fuga-floods-") as folder, served(Path(folder)) as api:
        asyncio.run(_honest(api, 1.0))
        for name in given.floods:
            _show(name, api, given.seconds)


def _show(name: str, api: FloodedApi, seconds: float) -> None:
    lines = len(api.log.read_text().splitlines())
    before, _ = asyncio.run(_honest(api, seconds))
    with _attacked(name, api):
        during, lost = asyncio.run(_honest(api, seconds))
    time.sleep(1.0)
    after, _ = asyncio.run(_honest(api, seconds))
    calm = [statistics.median(times) for times in (before, after)]
    ratio = statistics.median(during) / statistics.mean(calm) if during else float("inf")
    print(
        f"{name:<13}{statistics.mean(calm) * 1e3:>13.1f}{_p99(before + after) * 1e3:>9.1f}"
        f"{statistics.median(during or [0]) * 1e3:>14.1f}{_p99(during) * 1e3:>9.1f}"
        f"{ratio:>8.2f}{lost:>6}{len(api.log.read_text().splitlines()) - lines:>11,}",
        flush=True,
    )


def _p99(times: Sequence[float]) -> float:
    return statistics.quantiles(times, n=100)[98] if len(times) > 1 else float("inf")


@contextmanager
def served(folder: Path) -> Iterator[FloodedApi]:
    """Serve an API on a database with some data to read."""
    with a_register() as (_, url):
        registry = Registry.connect(url)
        a_cluster(registry, hosts=20)
        tokens = []
        for tenant in ("honest", "attacker"):
            add_tenant(registry, tenant)
            tokens.append(registry.tokens.create("tenant", tenant, tenant, actor="cli")[1])
        for tenant, count in (("honest", 20), ("attacker", 500)):
            for _ in range(count):
                add_request(registry, tenant=tenant)
        registry.close()
        port = a_quiet_port()
        env = {
            **inherited(),
            "FUGA_STATE_DIR": str(folder),
            "FUGA_DATABASE_URL": url,
            "FUGA_LISTEN": f"127.0.0.1:{port}",
            "FUGA_METRICS_LISTEN": "127.0.0.1:0",
        }
        log = folder / "api.log"
        process = Managed("api", fuga_command("api"), log, env=env, ready=READY)
        try:
            process.start()
            process.wait_until_ready()
            yield FloodedApi(port, *tokens, log)  # type: ignore[call-arg]
        finally:
            process.close()


async def _honest(api: FloodedApi, seconds: float) -> tuple[list[float], int]:
    """Return the seconds of each answer, and the number of missing answers."""
    until = time.perf_counter() + seconds
    callers = await asyncio.gather(*(_one(api, number, until) for number in range(CALLERS)))
    return [took for times, _ in callers for took in times], sum(lost for _, lost in callers)


async def _one(api: FloodedApi, number: int, until: float) -> tuple[list[float], int]:
    call = _head("GET", "/v1/requests?limit=5", token=api.honest).encode() + b"\r\n"
    source = f"127.0.1.{number + 1}"
    times: list[float] = []
    lost = 0
    await asyncio.sleep(PAUSE_S * number / CALLERS)
    while (started := time.perf_counter()) < until:
        try:
            async with asyncio.timeout(30):
                reader, writer = await _connect(api.port, source)
                writer.write(call)
                status = await _answer(reader)
                writer.close()
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            status = 0
        if status == 200:
            times.append(time.perf_counter() - started)
        else:
            lost += 1
        await asyncio.sleep(PAUSE_S)
    return times, lost


def _head(method: str, path: str, *, token: str | None = None, more: str = "") -> str:
    known = f"Authorization: Bearer {token}\r\n" if token else ""
    return f"{method} {path} HTTP/1.1\r\nHost: fuga\r\n{known}{more}"


async def _connect(port: int, source: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0))


async def _answer(reader: asyncio.StreamReader) -> int:
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    if b"content-length: " in head:
        await reader.readexactly(int(head.partition(b"content-length: ")[2].split()[0]))
    return int(head.split()[1])


@contextmanager
def _attacked(name: str, api: FloodedApi) -> Iterator[None]:
    command = [sys.executable, "-m", "benchmarks.floods", "--attack", name]
    env = {**os.environ, "FUGA_TOKEN": api.attacker}
    attacker = subprocess.Popen([*command, "--port", str(api.port)], env=env)
    try:
        time.sleep(2.0)
        if attacker.poll() is not None:
            raise RuntimeError(f"the flood {name} ended by itself")
        yield
    finally:
        attacker.kill()
        attacker.wait()


async def _attack(name: str, port: int, token: str) -> None:
    connections, flood = FLOODS[name]

    async def again_and_again() -> None:
        while True:
            with suppress(OSError, asyncio.IncompleteReadError):
                await flood(port, token)
            await asyncio.sleep(0)

    await asyncio.gather(*(again_and_again() for _ in range(connections)))


async def _ask_on(port: int, call: Callable[[], bytes]) -> None:
    """Send requests on one connection until it closes."""
    reader, writer = await _connect(port, ATTACKER)
    try:
        while True:
            writer.write(call())
            await writer.drain()
            await _answer(reader)
    finally:
        writer.close()


async def _wait_on(port: int, half: bytes) -> None:
    """Send half of a request and wait until the server closes the connection."""
    reader, writer = await _connect(port, ATTACKER)
    try:
        writer.write(half)
        await reader.read()
    finally:
        writer.close()
        await asyncio.sleep(0.1)  # connecting is a flood of its own


async def _brackets(port: int, _token: str) -> None:
    head = _head("POST", "/healthz", more=f"{JSON}Content-Length: {len(BRACKETS)}\r\n\r\n")
    await _ask_on(port, lambda: head.encode() + BRACKETS)


async def _heads(port: int, _token: str) -> None:
    await _wait_on(port, _head("GET", "/healthz").encode())


async def _bodies(port: int, token: str) -> None:
    head = _head("POST", "/v1/requests", token=token, more=f"{JSON}Content-Length: 100\r\n\r\n")
    await _wait_on(port, head.encode() + b"{")


async def _openapi(port: int, _token: str) -> None:
    call = (_head("GET", "/openapi.json") + "\r\n").encode()
    await _ask_on(port, lambda: call)


SCRIPT: Final = (_head("GET", "/docs/swagger-ui-bundle.js") + "\r\n").encode()


async def _script(port: int, _token: str) -> None:
    await _ask_on(port, lambda: SCRIPT)


async def _unread(port: int, _token: str) -> None:
    _, writer = await _connect(port, ATTACKER)
    try:
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(SCRIPT)
        await asyncio.sleep(UNREAD_S)
    finally:
        writer.close()


async def _guesses(port: int, _token: str) -> None:
    await _ask_on(port, (_head("GET", "/v1/requests", token=secrets.token_hex(20)) + "\r\n").encode)


async def _refusals(port: int, token: str) -> None:
    call = _head("POST", "/v1/tenants", token=token, more=f"{JSON}Content-Length: 2\r\n\r\n{{}}")
    await _ask_on(port, call.encode)


async def _connections(port: int, _token: str) -> None:
    with socket.socket() as one:
        one.setblocking(False)
        one.bind((ATTACKER, 0))
        await asyncio.get_running_loop().sock_connect(one, ("127.0.0.1", port))


def _chunked(chunk: bytes) -> Flood:
    head = _head("POST", "/healthz", more=f"{JSON}Transfer-Encoding: chunked\r\n\r\n").encode()

    async def flood(port: int, _token: str) -> None:
        reader, writer = await _connect(port, ATTACKER)
        try:
            writer.write(head)
            while not reader.at_eof():
                writer.write(chunk * 1000)
                await writer.drain()
                await asyncio.sleep(0)
        finally:
            writer.close()

    return flood


async def _slow(port: int, token: str) -> None:
    head = _head("POST", "/v1/requests", token=token, more=f"{JSON}Content-Length: 999\r\n\r\n")
    reader, writer = await _connect(port, secrets.choice(ATTACKERS[:3]))
    try:
        writer.write(head.encode())
        while not reader.at_eof():
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(1)
    finally:
        writer.close()
        await asyncio.sleep(0.1)


async def _idle(port: int, _token: str) -> None:
    reader, writer = await _connect(port, secrets.choice(ATTACKERS))
    try:
        writer.write((_head("GET", "/healthz") + "\r\n").encode())
        await _answer(reader)
        await reader.read()
    finally:
        writer.close()
        await asyncio.sleep(0.1)


def _reads(path: str) -> Flood:
    async def flood(port: int, token: str) -> None:
        await _ask_on(port, (_head("GET", path, token=token) + "\r\n").encode)

    return flood


def _sends(part: bytes, then: bytes = b"", pause_s: float = 0.0) -> Flood:
    """Return a flood that sends bytes, then others repeatedly, and ignores the answers."""

    async def flood(port: int, _token: str) -> None:
        reader, writer = await _connect(port, ATTACKER)
        taken = asyncio.ensure_future(_take_all(reader))
        try:
            writer.write(part)
            while then and not taken.done():
                await asyncio.sleep(pause_s)
                writer.write(then)
                await writer.drain()
            await taken
        finally:
            taken.cancel()
            writer.close()

    return flood


async def _take_all(reader: asyncio.StreamReader) -> None:
    while await reader.read(1 << 20):
        pass


LINES: Final = b"".join(b"x-%d: 1\r\n" % number for number in range(3000))
HEALTH: Final = _head("GET", "/healthz").encode()
CHUNKED: Final = _head("POST", "/healthz", more=f"{JSON}Transfer-Encoding: chunked\r\n\r\n")
OPENAPI: Final = _head("GET", "/openapi.json").encode() + b"\r\n"

#: How many at a time, and what each does.
FLOODS: Final[dict[str, tuple[int, Flood]]] = {
    "brackets": (4, _brackets),
    "heads": (1100, _heads),
    "bodies": (150, _bodies),
    "openapi": (4, _openapi),
    "script": (4, _script),
    "unread": (150, _unread),
    "guesses": (4, _guesses),
    "refusals": (4, _refusals),
    "connections": (4, _connections),
    "chunks": (4, _chunked(b"1\r\n \r\n")),
    "extensions": (4, _chunked(b"1;" + b"x" * 1000 + b"\r\n \r\n")),
    "slow": (480, _slow),
    "idle": (1000, _idle),
    "capacity": (16, _reads("/v1/capacity?vm_type=small")),
    "search": (16, _reads("/v1/requests?search=a&limit=500")),
    "events": (16, _reads("/v1/events?limit=500")),
    "query": (16, _sends(HEALTH.replace(b" HTTP", b"?" + b"q" * 60_000 + b" HTTP") + b"\r\n")),
    "lines": (16, _sends(HEALTH + LINES + b"\r\n")),
    "trailers": (16, _sends(CHUNKED.encode() + b"2\r\n{}\r\n0\r\n" + LINES + b"\r\n")),
    "pipelined": (16, _sends(OPENAPI, OPENAPI * 400)),
    "drip": (150, _sends(HEALTH, b"x: 1\r\n", 0.1)),
}


if __name__ == "__main__":
    main()
