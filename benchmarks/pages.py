"""Print what open pages of the web console cost: by streams and by polling, or view by view.

    python -m benchmarks.pages [--pages 50] [--seconds 20]
    python -m benchmarks.pages --views [--hosts 10000] [--vms 100000]

One process of `fuga api` on a PostgreSQL of its own, and callers that ask as pages do, each
with a connection of its own: by polling, one small call every three seconds; by a stream,
none. ``quiet``: nothing happens. ``busy``: a request is made every two seconds, and each page
reads a list of 100 VMs again whenever it learns of it, at most every three seconds, which is
the same either way. ``ms a second`` is processor time of the API and of PostgreSQL.

``--views``: Chromium opens each view of an operator, on a site of that size. ``API`` and
``database`` are their processor time until the view has read all that it shows; ``page`` is the
tab's own, and its heap of JavaScript after a collection; ``tab MB`` is the memory of its process
(of what processes share, its part). Then each call that views made is made again by itself,
the costly ones first.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx
from playwright.sync_api import CDPSession, Page, expect
from playwright.sync_api import Request as Asked

from benchmarks.kit import a_register, parser, unless
from benchmarks.processor import family_cpu_s
from benchmarks.registered import ask, load, run_what_was_placed
from controller.rest.call_batches import PAUSE_FACTOR
from registry import Registry
from tests.chaos.processes import Managed, fuga_command, inherited
from tests.register import add_host, add_request, add_tenant, add_vm_type, place
from tests.servers.browser import PATIENCE_MS, a_page
from tests.servers.ports import a_quiet_port
from tests.servers.postgres import why_not

EVERY_S: Final = 3.0
CHANGE_EVERY_S: Final = 2.0
VMS: Final = 100
#: What an operator may open; then a host and a VM.
VIEWS: Final = (
    *("", "vms", "requests", "ask", "groups", "images", "networks", "hosts", "map", "plans"),
    *("tenants", "site", "rounds", "events", "token", "what-ifs", "reservations"),
)
SETTLES_MS: Final = 1_000
#: Repeats of each call, whose mean is printed.
TIMES: Final = 3
#: Calls that took less than this of both processors together are not printed.
WORTH_TELLING_MS: Final = 5.0
#: What is printed of a call: its path, without ids.
V1: Final = "/v1/"


@dataclass
class Counted:
    """Counts of the calls that the pages made."""

    calls: int = 0


@dataclass(frozen=True)
class PagesSite:
    """The API of a site, and how to call it."""

    url: str
    token: str
    process: Managed
    database: int
    registry: Registry

    @property
    def api(self) -> int:
        """The process id of the API."""
        return self.process.pid

    def restart(self) -> None:
        """Restart the API in a new process."""
        self.process.close()
        self.process.start()
        self.process.wait_until_ready()


@unless(why_not)
def main(argv: Sequence[str] | None = None) -> None:
    given = parser(
        __doc__,
        pages=50,
        seconds=(20.0, "of each measurement"),
        views=(False, "each view of a large site"),
        hosts=10_000,
        vms=100_000,
    ).parse_args(argv)
    if given.views:
        show_views(given.hosts, given.vms)
        return
    print(f"{given.pages} pages, {given.seconds:g} s each")
    print(f"{'site':<8}{'by':<10}{'calls a second':>16}{'API ms a second':>18}{'database':>10}")
    with tempfile.TemporaryDirectory(prefix="fuga-bench-") as folder, a_site(Path(folder)) as site:
        for busy in (False, True):
            for stream in (False, True):
                show(site, given.pages, given.seconds, busy=busy, stream=stream)


def show(site: PagesSite, pages: int, seconds: float, *, busy: bool, stream: bool) -> None:
    calls, api_ms, database_ms = asyncio.run(
        measured(site, pages, seconds, busy=busy, stream=stream)
    )
    print(
        f"{'busy' if busy else 'quiet':<8}{'stream' if stream else 'polling':<10}"
        f"{calls:>16.1f}{api_ms:>18.1f}{database_ms:>10.1f}",
        flush=True,
    )


async def measured(
    site: PagesSite, pages: int, seconds: float, *, busy: bool, stream: bool
) -> tuple[float, float, float]:
    """Return calls, and processor time in ms of the API and of the database, per second."""
    counted = Counted()
    follow = listens if stream else polls
    limits = httpx.Limits(max_connections=None)
    headers = {"Authorization": f"Bearer {site.token}"}
    async with httpx.AsyncClient(
        base_url=site.url, headers=headers, limits=limits, timeout=30
    ) as client:
        tasks = [asyncio.create_task(follow(client, counted)) for _ in range(pages)]
        await asyncio.sleep(EVERY_S + 1)  # all of them have begun
        counted.calls, since = 0, time.monotonic()
        before = family_cpu_s(site.api), family_cpu_s(site.database)
        while time.monotonic() < since + seconds:
            await asyncio.sleep(CHANGE_EVERY_S)
            if busy:
                await asyncio.to_thread(add_request, site.registry)
        took_s = time.monotonic() - since
        after = family_cpu_s(site.api), family_cpu_s(site.database)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    api_ms, database_ms = (1000 * (b - a) / took_s for a, b in zip(before, after, strict=True))
    return counted.calls / took_s, api_ms, database_ms


async def polls(client: httpx.AsyncClient, counted: Counted) -> None:
    """Follow events as a page without a stream does."""
    after = await newest(client)
    while True:
        await asyncio.sleep(EVERY_S)
        counted.calls += 1
        found = await client.get("/v1/events", params={"after": after, "limit": 1})
        if found.json()["items"]:
            counted.calls += 1
            after = await newest(client)
            await read(client, counted)


async def listens(client: httpx.AsyncClient, counted: Counted) -> None:
    """Follow events as a page with a stream does."""
    read_at = 0.0
    async with client.stream("GET", "/v1/events/stream", params={"brief": True}) as answer:
        answer.raise_for_status()
        async for line in answer.aiter_lines():
            if line == "event: changed":
                await asyncio.sleep(max(0.0, read_at + EVERY_S - time.monotonic()))
                read_at = time.monotonic()
                await read(client, counted)


async def newest(client: httpx.AsyncClient) -> int:
    """Return the id of the newest event."""
    return int((await client.get("/v1/events", params={"newest": True, "limit": 1})).json()["next"])


async def read(client: httpx.AsyncClient, counted: Counted) -> None:
    """Read the records that the page shows."""
    counted.calls += 1
    (await client.get("/v1/vms", params={"limit": 500})).raise_for_status()


def show_views(hosts: int, vms: int) -> None:
    """Open each view of a large site, one after another in one tab."""
    larger = max(1, vms // (8 * hosts) + 1)

    def filled(url: str) -> None:
        loaded = load(url, hosts=hosts, running=vms, larger=larger)
        run_what_was_placed(loaded)
        ask(loaded, vms // 100)

    print(f"{hosts:,} hosts, {vms:,} VMs running")
    titles = ("view", "API ms", "database ms", "page ms", "heap MB", "tab MB", "elements")
    print("{:<18}{:>8}{:>13}{:>9}{:>9}{:>8}{:>10}".format(*titles))
    with (
        tempfile.TemporaryDirectory(prefix="fuga-bench-") as folder,
        a_site(Path(folder), filled, role="operator") as site,
    ):
        made = _open_views(site)
        show_calls(site, made)


def _open_views(site: PagesSite) -> Sequence[str]:
    """Open each view and print its cost; return the calls that all views made."""
    with a_page() as page:
        made: dict[str, None] = {}
        page.on("request", lambda requested: made.update(_of_the_api(requested)))
        tab = page.context.new_cdp_session(page)
        tab.send("Performance.enable")
        page.goto(f"{site.url}/web/")
        page.get_by_label("Token").fill(site.token)
        page.get_by_role("button", name="Log in").click()
        host = site.registry.hosts.list(limit=1).items[0].name
        vm = site.registry.vms.list(limit=1).items[0].id
        for where in (*VIEWS, f"hosts/{host}", f"vms/{vm}"):
            before = family_cpu_s(site.api), family_cpu_s(site.database)
            busy = _metric(tab, "TaskDuration")
            page.evaluate("where => { location.hash = where; }", f"#/{where}")
            page.get_by_role("heading", level=1).wait_for()
            page.wait_for_timeout(SETTLES_MS)  # what it reads has begun
            expect(page.locator("main .loading")).to_have_count(0, timeout=PATIENCE_MS)
            after = family_cpu_s(site.api), family_cpu_s(site.database)
            api_ms, database_ms = (1000 * (b - a) for a, b in zip(before, after, strict=True))
            page_ms = 1000 * (_metric(tab, "TaskDuration") - busy)
            tab_mb = memory_of_tab(page) / 1e6
            tab.send("HeapProfiler.collectGarbage")
            heap_mb = _metric(tab, "JSHeapUsedSize") / 1e6
            elements = page.evaluate("document.querySelectorAll('*').length")
            print(
                f"{where.partition('/')[0] or 'overview':<18}{api_ms:>8.0f}{database_ms:>13.0f}"
                f"{page_ms:>9.0f}{heap_mb:>9.1f}{tab_mb:>8.0f}{elements:>10,}",
                flush=True,
            )
        return list(made)


def _of_the_api(asked: Asked) -> Mapping[str, None]:
    """Return the path of a finite GET call to the API, as the only key of a mapping."""
    path = asked.url[asked.url.find(V1) :]
    reads = asked.method == "GET" and V1 in asked.url and "/stream" not in path
    return {path: None} if reads else {}


def show_calls(site: PagesSite, paths: Iterable[str]) -> None:
    """Make calls one after another, and print the cost of each, the highest first."""
    cost: dict[str, tuple[float, float, float]] = {}
    headers = {"Authorization": f"Bearer {site.token}"}
    with httpx.Client(base_url=site.url, headers=headers, timeout=300) as client:
        for path in paths:
            first = client.get(path)  # what is made once is made
            if first.is_error:  # the inputs of the round of this site are made up
                print(f"answered {first.status_code}: {path}")
                continue
            before = family_cpu_s(site.api), family_cpu_s(site.database)
            took_s = 0.0
            for _ in range(TIMES):
                began = time.monotonic()
                client.get(path).raise_for_status()
                took_s += (one_s := time.monotonic() - began)
                time.sleep((1 + PAUSE_FACTOR) * one_s)  # what all share is not made at once again
            answered_ms = 1000 * took_s / TIMES
            after = family_cpu_s(site.api), family_cpu_s(site.database)
            api_ms, database_ms = (
                1000 * (b - a) / TIMES for a, b in zip(before, after, strict=True)
            )
            cost[path] = api_ms, database_ms, answered_ms
    print(f"\n{'API ms':>6}{'database ms':>13}{'answered ms':>13}  call")
    for path, (api_ms, database_ms, answered_ms) in sorted(
        cost.items(), key=lambda each: -sum(each[1][:2])
    ):
        if api_ms + database_ms >= WORTH_TELLING_MS:
            print(f"{api_ms:>6.0f}{database_ms:>13.0f}{answered_ms:>13.0f}  {path}", flush=True)


def memory_of_tab(page: Page) -> int:
    """Return the memory of the renderer process of a tab in bytes, as PSS.

    The browser keeps an empty process for the next tab: ours is the largest.
    """
    browser = page.context.browser
    assert browser is not None
    found = browser.new_browser_cdp_session().send("SystemInfo.getProcessInfo")["processInfo"]
    return max(_pss_bytes(each["id"]) for each in found if each["type"] == "renderer")


def _pss_bytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def _metric(tab: CDPSession, name: str) -> float:
    found = tab.send("Performance.getMetrics")["metrics"]
    return float(next(each["value"] for each in found if each["name"] == name))


def _a_few_vms(url: str) -> None:
    registry = Registry.connect(url)
    add_vm_type(registry)
    add_tenant(registry)
    host = add_host(registry, vcpus=1000, memory_mib=2_000_000, disk_gib=100_000)
    place(registry, add_request(registry, VMS), host, VMS)
    registry.close()


@contextmanager
def a_site(
    folder: Path, fill: Callable[[str], None] = _a_few_vms, *, role: str = "tenant"
) -> Iterator[PagesSite]:
    """Serve the API of a site that has some VMs."""
    with a_register() as (server, url):
        fill(url)
        registry = Registry.connect(url)
        tenant = "a" if role == "tenant" else None
        _, secret = registry.tokens.create(role, tenant, "bench", actor="cli")
        port = a_quiet_port()
        env = {
            **inherited(),
            "FUGA_STATE_DIR": str(folder),
            "FUGA_DATABASE_URL": url,
            "FUGA_LISTEN": f"127.0.0.1:{port}",
        }
        api = Managed("api", fuga_command("api"), folder / "api.log", env=env, ready="api_started")
        try:
            api.start()
            api.wait_until_ready()
            yield PagesSite(f"http://127.0.0.1:{port}", secret, api, server.pid, registry)
        finally:
            api.close()
            registry.close()


if __name__ == "__main__":
    main()
