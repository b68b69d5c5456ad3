"""Print how long each question to the API takes, the first time and again, the slowest first.

    python -m benchmarks.site.answers [--hosts 200] [--waiting 2000] [--repeats 5] [--restart]

One process of `fuga api` on a PostgreSQL of its own, a site of hosts that run eight VMs
each, and VMs that wait behind a round. It calls all routes of the API that read, and previews:
tenants' changes that are taken back, replays, the steps of a round, a second policy, whether hosts
may fail, and a what-if, which is only requested. ``first`` is the first call of that route in the
process, ``again`` the median of later ones, ``of ready`` its ratio to `/readyz` in the same run,
which differs less between machines than milliseconds do. With ``--restart`` the process starts
again before each route, so that no other route has imported anything. A call over a second is
marked.

Left out are consoles, which workers read, and streams, which do not end.
"""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final

import httpx

from benchmarks import registered
from benchmarks.kit import parser, unless
from benchmarks.pages import PagesSite, a_site
from controller.rest.pages.published import openapi_document
from controller.rounds.policy_process import PolicyProcess
from registry import Registry
from tests.e2e.slots import run_slot
from tests.servers.postgres import why_not

VMS_PER_HOST: Final = 8
LIMIT_S: Final = 1.0
READY: Final = "/readyz"
#: Whatever ends neither by itself nor without a worker, and the login of people.
_LEFT_OUT: Final = re.compile(r"/stream$|/console|^/v1/login")
_SLOT: Final = 2


@dataclass(frozen=True, slots=True)
class TimedCall:
    """A call to the API whose time is measured."""

    path: str
    method: str = "GET"
    query: Mapping[str, Any] = field(default_factory=dict)
    body: Any = None

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


@dataclass(frozen=True, slots=True)
class Answered:
    """A call and the times of its answers."""

    question: TimedCall
    status: int
    first_s: float
    again_s: float
    said: str = ""  #: why it was refused


@unless(why_not)
def main(argv: Sequence[str] | None = None) -> None:
    given = parser(
        __doc__,
        hosts=200,
        waiting=(2_000, "VMs"),
        repeats=5,
        restart=(False, "the process before each route"),
    ).parse_args(argv)

    def fill(url: str) -> None:
        running = VMS_PER_HOST * given.hosts
        loaded = registered.load(url, hosts=given.hosts, running=running, larger=2)
        registered.ask(loaded, given.waiting)
        registered.analyze(loaded)
        decide(url)
        registered.run_what_was_placed(loaded)
        registered.ask(loaded, given.waiting)
        registered.analyze(loaded)

    with (
        tempfile.TemporaryDirectory(prefix="fuga-answers-") as folder,
        a_site(Path(folder), fill, role="operator") as site,
    ):
        show(measured(site, given.repeats, restart=given.restart))


def decide(url: str) -> None:
    """Decide a round, which is computed again later."""
    registry, decider = Registry.connect(url), PolicyProcess()
    try:
        run_slot(registry, decider, _SLOT)
    finally:
        decider.close()
        registry.close()


def measured(site: PagesSite, repeats: int, *, restart: bool) -> list[Answered]:
    """Make each call once, then several times."""
    headers = {"Authorization": f"Bearer {site.token}"}
    with httpx.Client(base_url=site.url, headers=headers, timeout=300) as client:
        found = []
        for each in (TimedCall(READY), *questions(site.registry)):
            if restart:
                site.restart()
            first_s, answer = timed_answer(client, each)
            again_s = [timed_answer(client, each)[0] for _ in range(repeats)]
            said = answer.text if answer.is_error else ""
            found.append(Answered(each, answer.status_code, first_s, median(again_s), said))
        return found


def timed_answer(client: httpx.Client, question: TimedCall) -> tuple[float, httpx.Response]:
    """Make a call and read its answer."""
    began = time.perf_counter()
    answer = client.request(
        question.method, question.path, params=question.query, json=question.body
    )
    return time.perf_counter() - began, answer


def questions(registry: Registry) -> Iterator[TimedCall]:
    """Yield a call of each GET route, and calls of the previews."""
    host = registry.hosts.list(limit=1).items[0].name
    vm = registry.vms.list(limit=1).items[0]
    tenant = vm.tenant
    waiting = registry.requests.list(limit=1).items[0]
    number = registry.rounds.list(limit=1).items[0].number
    known = {
        r"^/v1/hosts/\{name\}": f"/v1/hosts/{host}",
        r"^/v1/tenants/\{name\}": f"/v1/tenants/{tenant}",
        r"^/v1/vm-types/\{name\}": f"/v1/vm-types/{vm.vm_type}",
        r"\{vm_id\}": str(vm.id),
        r"\{request_id\}": str(waiting.id),
        r"\{number\}": str(number),
    }
    needed = {
        "/v1/capacity": {"vm_type": vm.vm_type},
        "/v1/host-aliases": {"tenant": tenant, "name": host},
        "/v1/rounds/proofs": {"tenant": tenant},
    }
    for path, methods in openapi_document()["paths"].items():
        if "get" not in methods or _LEFT_OUT.search(path) or path == READY:
            continue
        real = path
        for pattern, value in known.items():
            real = re.sub(pattern, value, real)
        if "{" not in real:  # else there is no such thing on this site
            yield TimedCall(real, query=needed.get(real, {}))
    dry = {"dry_run": True}
    yield TimedCall("/v1/tenants", "POST", dry, {"name": "new"})
    yield TimedCall(f"/v1/tenants/{tenant}", "PATCH", dry, {"weight": 2})
    yield TimedCall(f"/v1/rounds/{number}/replay", "POST")
    yield TimedCall(f"/v1/rounds/{number}/second-policy", "POST", body={"policy": "best_fit_drfh"})
    yield TimedCall("/v1/what-ifs", "POST", body={"hours": 1, "weights": {tenant: 2}})


def show(found: Sequence[Answered]) -> None:
    """Print the calls and their times, the slowest first."""
    ready_s = found[0].again_s
    print(f"{'first ms':>9}{'again ms':>10}{'of ready':>10}{'status':>8}  call")
    for each in sorted(found, key=lambda one: -max(one.first_s, one.again_s)):
        slow = "  ABOVE" if max(each.first_s, each.again_s) > LIMIT_S else ""
        print(
            f"{1000 * each.first_s:>9.0f}{1000 * each.again_s:>10.0f}"
            f"{each.again_s / ready_s:>10.1f}{each.status:>8}  {each.question}{slow}"
        )
    for each in found:
        if each.said:
            print(f"{each.question}: {each.said}")


if __name__ == "__main__":
    main()
