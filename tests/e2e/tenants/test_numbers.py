"""What others hold reaches no tenant as an exact number.

Two sites differ in one VM of another tenant, within one step of the numbers that tenants
see. Whatever a tenant reads, or is refused with, is the same at both.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from controller.rest import create_app
from controller.rounds.policy_process import PolicyProcess
from registry import Registry
from registry.networks import NetworkSource, Subnet
from tests.e2e.conftest import a_token
from tests.e2e.slots import run_slot
from tests.e2e.tenants.site import RIVAL, RIVAL_TYPE, Site, host_name
from tests.e2e.tenants.test_view import LASTS, Crawl
from tests.register import ON_ANY_DATABASE, add_host, add_tenant, add_vm_type, run_vm
from tests.servers.http_client import a_client

pytestmark = ON_ANY_DATABASE

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_MAC = re.compile(r"02:f6(:[0-9a-f]{2}){4}")
_TIME = re.compile(r"20\d\d-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)?")
#: Where a list goes on, and the ids of events, which count those of all.
_PLACE = re.compile(r'("next":|"id":)("[\w=-]+"|\d+)')
#: A tenant's own usage grows with the time.
_USAGE = re.compile(r'("held":|"charged":)"\d+\.\d{6}"')
_HASH = re.compile(r"\b(sha256:)?[0-9a-f]{24,64}\b")
TYPES = {"small": 1, RIVAL_TYPE: 1, "wide": 4, "large": 15, "half": 77, "most": 147}
#: Requests that wait, each for another reason.
WAITING: dict[str, dict[str, Any]] = {
    "large": {"vm_type": "large", "count": 3},
    "gang": {"vm_type": "small", "count": 75},
    "spread": {"vm_type": "wide", "count": 30, "rules": {"spread": "zone"}},
    "apart": {"vm_type": "wide", "count": 9, "rules": {"anti_affinity": {"group": "g"}}},
    "together": {"vm_type": "wide", "count": 9, "rules": {"affinity": {"group": "h"}}},
    "zone": {"vm_type": "wide", "count": 20, "rules": {"zone": "east"}},
    "labelled": {"vm_type": "large", "count": 2, "requires": ["ssd"]},
    "addressed": {"vm_type": "small", "count": 130, "network": "lan"},
}
#: What a tenant is refused, and the refusal says how much there is or may be.
REFUSED: list[dict[str, Any]] = [
    body
    for type_ in ("small", "wide", "large")
    for body in (
        {"vm_type": type_, "count": 390},
        {"vm_type": type_, "count": 900, "name": "r", "for_s": 3600},
    )
]
#: Last for an hour, or tell of times and processes alone. Proofs show what was settled, to be
#: compared with its digest: docs/threat-model.md says what that reveals.
APART = {LASTS, "/v1/status", "/v1/slot-loop", "/v1/token", "/readyz", "/v1/vms/{vm_id}/console"}
APART |= {"/v1/rounds/proofs"}


def a_site(registry: Registry) -> Site:
    """Make a site whose hosts are nearly full."""
    add_tenant(registry, "a")
    add_tenant(registry, RIVAL, weight=2.0)
    for name, vcpus in TYPES.items():
        add_vm_type(registry, name, vcpus=vcpus, memory_mib=256, disk_gib=1)
    for number in range(1, 7):
        zone = "east" if number < 4 else "west"
        add_host(registry, host_name(number), vcpus=160, labels=("ssd", f"zone={zone}"))
    registry.quotas.set("a", {"vms": 400}, actor="cli")
    subnet = Subnet(cidr="10.9.0.0/25")
    registry.networks.add(
        "lan", actor="cli", subnet=subnet, default=NetworkSource(kind="bridge", name="br0")
    )
    return opened(registry)


def opened(registry: Registry, secrets: tuple[str, str] | None = None) -> Site:
    app = create_app(registry, console_wait_s=0.01)
    mine, theirs = secrets or (a_token(registry, "a", "laptop"), a_token(registry, None))
    tenant, operator = a_client(app, token=mine), a_client(app, token=theirs)
    return Site(registry, app, tenant, operator, f"{mine} {theirs}", ())


def start(
    site: Site, decider: PolicyProcess, slot: int, *wanted: tuple[str, dict[str, Any]]
) -> None:
    """Ask for VMs, decide, and let run whatever was placed."""
    for tenant, body in wanted:
        answer = site.operator.post("/v1/requests", json={"tenant": tenant, **body})
        assert answer.status_code == 201, answer.text
    run_slot(site.registry, decider, slot)
    for vm in site.registry.vms.list(limit=500).items:
        if vm.assignment_id is not None and vm.assignment_state == "reserved":
            run_vm(site.registry, vm.assignment_id)


def on(host: int) -> dict[str, Any]:
    return {"hosts": [host_name(host)]}


@contextmanager
def a_copy(site: Site, url: str, folder: Path) -> Iterator[Site]:
    path = folder / "other.db"
    with sqlite3.connect(url.removeprefix("sqlite:///")) as one, sqlite3.connect(path) as other:
        one.backup(other)
    registry = Registry.connect(f"sqlite:///{path}")
    mine, _, theirs = site.secret.partition(" ")
    yield opened(registry, (mine, theirs))
    registry.close()


class Numbers(Crawl):
    """Reads all that the tenant may read, and keeps what two sites should have in common."""

    def run(self) -> None:
        for collection, key in (("requests", "request_id"), ("vms", "vm_id")):
            for each in self.site.tenant.get(f"/v1/{collection}").json()["items"]:
                self.found[key][each["id"]] = None
                if each.get("host"):
                    self.found["host"][each["host"]] = None
        for path, operations in self.document["paths"].items():
            if "get" in operations and path not in APART:
                self._call_with_all("GET", path, operations["get"])
        for body in REFUSED:
            path = "/v1/reservations" if "name" in body else "/v1/requests"
            self._keep(f"POST {path} {body}", self.site.tenant.post(path, json=body))

    def _call(self, method: str, path: str, query: dict[str, str], sent: list[str]) -> None:
        answer = self.site.tenant.request(method, path, params=query)
        self._keep(f"{method} {path} {query}", answer)

    def _keep(self, call: str, answer: httpx.Response) -> None:
        if answer.status_code != 403 or "quota" in answer.text:
            self.answers.append((call, f"{answer.status_code} {answer.text}"))

    @property
    def plain(self) -> dict[str, str]:
        """All answers by call, without ids and times: no two sites have those in common."""
        ids: dict[str, str] = {}

        def plain(text: str) -> str:
            text = _UUID.sub(lambda found: ids.setdefault(found[0], f"id-{len(ids)}"), text)
            text = _USAGE.sub(r"\1USAGE", _PLACE.sub(r"\1PLACE", text))
            return _HASH.sub("HASH", _MAC.sub("MAC", _TIME.sub("TIME", text)))

        return {plain(call): plain(text) for call, text in self.answers}


def test_one_more_vm_of_others_within_a_step_changes_nothing_that_a_tenant_sees(
    register: Registry, register_url: str, decider: PolicyProcess, tmp_path: Path
):
    site = a_site(register)
    start(site, decider, 1, ("a", {"vm_type": "small", "count": 4, "name": "web", **on(2)}))
    halves = {"vm_type": "half", "count": 2, "network": "lan"}
    others = [(RIVAL, {**halves, **on(host)}) for host in range(2, 7)]
    start(site, decider, 2, (RIVAL, {"vm_type": "most", "count": 1, **on(1)}), *others)
    waiting = [("a", {"name": name, "min_count": v["count"], **v}) for name, v in WAITING.items()]

    with a_copy(site, register_url, tmp_path) as other:
        found = []
        for each, count in ((site, 1), (other, 2)):
            rivals = {"vm_type": RIVAL_TYPE, "count": count, "network": "lan", **on(1)}
            start(each, decider, 3, (RIVAL, rivals))
            start(each, decider, 4, *waiting)
            numbers = Numbers(each)
            numbers.run()
            found.append(numbers.plain)

    here, there = found
    assert len(here) > 60
    assert here.keys() == there.keys()
    assert [(call, here[call], there[call]) for call in here if here[call] != there[call]] == []
