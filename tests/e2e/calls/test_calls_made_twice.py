"""Every creating call, repeated with its key, does its work once, whenever its process dies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final
from uuid import UUID

import httpx
import pytest

from controller.what_ifs.executor import WhatIfExecutor
from registry import PowerEvent
from registry.images import ImageStore
from registry.moves import PlannedMove
from tests.deaths import Death, death
from tests.e2e.conftest import Api
from tests.e2e.moving import a_host_of_guests, a_running_vm
from tests.problems import the_problem
from tests.raw_sql import RawSql
from tests.register import add_request

__all__ = ["death"]
MAX_POINTS: Final = 300
SSH_KEY: Final = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIDnJJ3wFlL2M0NQ8S9YeGGNUWuJ3fO7EVUPqRfJ5tS3m"
ROLL: Final = {"hosts": ["h1"], "command": "./update", "driver": "fuga on desk"}
IMAGE: Final = {"name": "debian", "url": "https://images.example.org/a.qcow2", "sha256": "0" * 64}


@dataclass(frozen=True, kw_only=True)
class Call:
    """A creating call, and a count that it makes greater by one."""

    path: str
    body: Mapping[str, Any] = field(default_factory=dict)
    #: means something else, and is as well-formed; None: there is no such body
    other: Mapping[str, Any] | None = None
    one: str  #: a table, or a kind of events
    by: str = "operator"
    content: bytes | None = None  #: sent in place of a body, which is then the query

    def post(self, api: Api, key: str | None, body: Mapping[str, Any] | None = None) -> Any:
        client: httpx.Client = getattr(api, self.by)
        headers = {} if key is None else {"Idempotency-Key": key}
        if self.content is not None:
            headers["Content-Type"] = "application/octet-stream"
            query = dict(body or self.body)
            return client.post(self.path, params=query, content=self.content, headers=headers)
        return client.post(self.path, json=dict(body or self.body), headers=headers)

    def count(self, raw: RawSql) -> int:
        kind, _, table = self.one.rpartition(" ")
        where = f" WHERE kind = '{kind}'" if kind else ""
        found: int = raw.value(f"SELECT count(*) FROM {table}{where}")
        return found


def _two_hosts(api: Api) -> str:
    """Return the id of a VM of tenant a that runs on the first."""
    here = a_host_of_guests(api.registry, "h1")
    a_host_of_guests(api.registry, "h2")
    return a_running_vm(api.registry, here)


def _image(api: Api) -> Call:
    services = api.app.state.services
    api.app.state.services = replace(services, image_urls=("https://images.example.org/",))
    return Call(path="/v1/images", body=IMAGE, other=IMAGE | {"format": "raw"}, one="images")


def _upload(_: Api) -> Call:
    body = {"name": "debian", "format": "raw"}
    other = body | {"seed_kind": "nocloud"}
    content = bytes(512)
    return Call(path="/v1/images/upload", body=body, other=other, content=content, one="images")


def _move(api: Api) -> Call:
    body = {"vm": _two_hosts(api), "host": "h2", "reason": "test"}
    return Call(path="/v1/moves", body=body, other=body | {"reason": "other"}, one="moves")


def _move_anywhere(api: Api) -> Call:
    body = {"vm": _two_hosts(api), "reason": "test"}
    return Call(path="/v1/moves", body=body, other=body | {"reason": "other"}, one="moves")


def _cancel_move(api: Api) -> Call:
    body = {"vm": _two_hosts(api), "host": "h2", "reason": "test"}
    move = api.operator.post("/v1/moves", json=body).json()
    return Call(path=f"/v1/moves/{move['id']}/cancel", one="move_state events")


def _plan(api: Api) -> str:
    return str(api.operator.post("/v1/plans", json={"kind": "repair"}).json()["id"])


def _approve(api: Api) -> Call:
    vm, plan = _two_hosts(api), _plan(api)
    here, there = (api.registry.hosts.get(name) for name in ("h1", "h2"))
    move = PlannedMove(
        vm_id=UUID(vm),
        from_host_id=here.id,
        to_host_id=there.id,
        wave=0,
        why="mends",
        transfer_mib=1,
    )
    api.registry.plans.propose(
        UUID(plan),
        [move],
        before={},
        after={},
        stays=[],
        cut=False,
        inputs=b"inputs",
        document={},
        actor="control",
    )
    return Call(path=f"/v1/plans/{plan}/approve", one="plan_state events")


def _cancel_plan(api: Api) -> Call:
    return Call(path=f"/v1/plans/{_plan(api)}/cancel", one="plan_state events")


def _roll(api: Api) -> Call:
    a_host_of_guests(api.registry, "h1")
    return Call(path="/v1/rolls", body=ROLL, other=ROLL | {"command": "true"}, one="rolls")


def _a_roll(api: Api) -> Any:
    a_host_of_guests(api.registry, "h1")
    return api.operator.post("/v1/rolls", json=ROLL).json()


def _resume_roll(api: Api) -> Call:
    claim = _a_roll(api)
    drivers = f"/v1/rolls/{claim['roll']['id']}/drivers/{claim['token']}"
    failed = {"host": "h1", "error": "exit status 3"}
    for step in ({}, {}, {"begun": ["h1"]}, {"ended": [failed]}, {"leave": True}):
        api.operator.put(drivers, json=step)
    body = {"command": "./update", "driver": "fuga on desk"}
    path = f"/v1/rolls/{claim['roll']['id']}/resume"
    return Call(path=path, body=body, other=body | {"command": "true"}, one="roll_state events")


def _cancel_roll(api: Api) -> Call:
    claim = _a_roll(api)
    drivers = f"/v1/rolls/{claim['roll']['id']}/drivers/{claim['token']}"
    failed = {"host": "h1", "error": "exit status 3"}
    for step in ({}, {}, {"begun": ["h1"]}, {"ended": [failed]}, {"leave": True}):
        api.operator.put(drivers, json=step)
    return Call(path=f"/v1/rolls/{claim['roll']['id']}/cancel", one="roll_state events")


def _console(api: Api) -> Call:
    path = f"/v1/vms/{_two_hosts(api)}/console/sessions"
    other = {"force": True}
    return Call(path=path, other=other, one="console_opened events", by="tenant_a")


def _switch_vm(verb: str) -> Callable[[Api], Call]:
    def make(api: Api) -> Call:
        vm = _two_hosts(api)
        if verb == "start":
            api.tenant_a.post(f"/v1/vms/{vm}/stop", json={})
            step = api.registry.power.claim(UUID(vm), "w1", 60)
            assert step is not None
            api.registry.power.advance(step.claim, PowerEvent.SEEN_OFF)
        other = None if verb == "start" else {"timeout_s": 7}
        path = f"/v1/vms/{vm}/{verb}"
        return Call(path=path, other=other, one="vm_power events", by="tenant_a")

    return make


def _switch_request(verb: str) -> Callable[[Api], Call]:
    def make(api: Api) -> Call:
        if verb == "reboot":
            _two_hosts(api)
            request = str(api.registry.requests.list().items[0].id)
            one = "vm_power events"
        else:
            request = str(add_request(api.registry, 1).id)
            one = "vm_desired events"
        if verb == "start":
            api.tenant_a.post(f"/v1/requests/{request}/stop", json={})
        other = None if verb == "start" else {"timeout_s": 7}
        return Call(path=f"/v1/requests/{request}/{verb}", other=other, one=one, by="tenant_a")

    return make


def _resume_loop(api: Api) -> Call:
    api.operator.post("/v1/slot-loop/pause", json={"reason": "test"})
    return Call(path="/v1/slot-loop/resume", other={"reason": "b"}, one="slot_loop events")


def _cancel_what_if(api: Api) -> Call:
    what_if = api.operator.post("/v1/what-ifs", json={"policy": "best_fit"})
    return Call(path=f"/v1/what-ifs/{what_if.json()['id']}/cancel", one="what_if_state events")


def _price(api: Api) -> Call:
    api.registry.prices.set_currency("EUR", actor="operator")
    body = {"resource": "vcpus", "price": "0.5", "since": "2020-01-01"}
    return Call(path="/v1/prices", body=body, other=body | {"price": "1"}, one="prices")


def _close_month(_: Api) -> Call:
    body, other = ({"month": month} for month in ("2020-01", "2020-02"))
    return Call(path="/v1/usage/months", body=body, other=other, one="closed_usage")


def _correct_month(api: Api) -> Call:
    api.registry.prices.set_currency("EUR", actor="operator")
    api.registry.closed_months.close(date(2020, 1, 1), actor="operator")
    body = {"month": "2020-01", "tenant": "a", "cost": "-1", "reason": "test"}
    return Call(
        path="/v1/usage/corrections", body=body, other=body | {"cost": "1"}, one="closed_usage"
    )


def _attach(api: Api) -> Call:
    here = a_host_of_guests(api.registry, "h1", disk_gib=100)
    vm, other = (a_running_vm(api.registry, here, name=name) for name in ("web", "db"))
    volume = api.tenant_a.post("/v1/volumes", json={"name": "data", "size_gib": 1}).json()
    path = f"/v1/volumes/{volume['id']}/attach"
    one = "volume_state events"
    return Call(path=path, body={"vm": vm}, other={"vm": other}, one=one, by="tenant_a")


def _detach(api: Api) -> Call:
    attach = _attach(api)
    attach.post(api, None)
    path = attach.path.replace("/attach", "/detach")
    return Call(path=path, one="volume_state events", by="tenant_a")


def _plain(
    path: str, body: Any, one: str, *, by: str = "operator", **other: Any
) -> Callable[[Api], Call]:
    def make(_: Api) -> Call:
        return Call(path=f"/v1/{path}", body=body, other=body | other, one=one, by=by)

    return make


#: By route. A new one with the header Idempotency-Key belongs here.
CALLS: Final[Mapping[str, Callable[[Api], Call]]] = MappingProxyType(
    {
        "/v1/hosts": _plain(
            "hosts", {"name": "h1", "uri": "qemu+tls://h1/system"}, "hosts", labels=["ssd"]
        ),
        "/v1/images": _image,
        "/v1/images/upload": _upload,
        "/v1/login/links": _plain("login/links", {}, "login_codes", read_only=True),
        "/v1/moves": _move,
        "/v1/moves without a host": _move_anywhere,
        "/v1/moves/{move_id}/cancel": _cancel_move,
        "/v1/networks": _plain(
            "networks",
            {"name": "lan", "default": {"kind": "bridge", "name": "br0"}},
            "networks",
            isolated=False,
        ),
        "/v1/plans": _plain("plans", {"kind": "repair"}, "plans", approve=True),
        "/v1/plans/{id}/approve": _approve,
        "/v1/plans/{id}/cancel": _cancel_plan,
        "/v1/prices": _price,
        "/v1/requests": _plain(
            "requests", {"vm_type": "small", "count": 2}, "requests", by="tenant_a", count=3
        ),
        "/v1/requests of hosts": lambda api: (
            _two_hosts(api)
            and Call(
                path="/v1/requests",
                body={"vm_type": "small", "count": 1, "hosts": [api.alias("h1")]},
                one="requests",
                by="tenant_a",
            )
        ),
        "/v1/requests/{request_id}/reboot": _switch_request("reboot"),
        "/v1/requests/{request_id}/start": _switch_request("start"),
        "/v1/requests/{request_id}/stop": _switch_request("stop"),
        "/v1/reservations": _plain(
            "reservations",
            {"vm_type": "small", "count": 1, "for_s": 3600},
            "reservations",
            by="tenant_a",
            count=2,
        ),
        "/v1/resources": _plain("resources", {"name": "gpu"}, "resources", unit="GPU"),
        "/v1/rolls": _roll,
        "/v1/rolls/{id}/cancel": _cancel_roll,
        "/v1/rolls/{id}/resume": _resume_roll,
        "/v1/slot-loop/pause": _plain(
            "slot-loop/pause", {"reason": "a"}, "slot_loop events", reason="b"
        ),
        "/v1/slot-loop/resume": _resume_loop,
        "/v1/ssh-keys": _plain(
            "ssh-keys", {"name": "k", "public_key": SSH_KEY}, "ssh_keys", by="tenant_a", name="l"
        ),
        "/v1/tenants": _plain("tenants", {"name": "c"}, "tenants", weight=2),
        "/v1/tokens": _plain("tokens", {"role": "operator", "name": "t"}, "tokens", ttl_s=60),
        "/v1/usage/corrections": _correct_month,
        "/v1/usage/months": _close_month,
        "/v1/volumes": _plain(
            "volumes", {"name": "v", "size_gib": 1}, "volumes", by="tenant_a", name="w"
        ),
        "/v1/volumes/{id}/attach": _attach,
        "/v1/volumes/{id}/detach": _detach,
        "/v1/vm-types": _plain(
            "vm-types",
            {"name": "c", "resources": {"vcpus": 1, "memory_mib": 1}},
            "vm_types",
            limits={"net_mbit_s": 1},
        ),
        "/v1/vms/{vm_id}/console/sessions": _console,
        "/v1/vms/{vm_id}/reboot": _switch_vm("reboot"),
        "/v1/vms/{vm_id}/start": _switch_vm("start"),
        "/v1/vms/{vm_id}/stop": _switch_vm("stop"),
        "/v1/what-ifs": _plain("what-ifs", {"policy": "best_fit"}, "what_ifs", hours=2),
        "/v1/what-ifs/{id}/cancel": _cancel_what_if,
    }
)
#: POSTs that take no key, and why repeating them does no harm.
WITHOUT_A_KEY: Final = frozenset(
    {
        "/v1/hosts/{name}/fence",  # a host that is fenced, or being so, is not fenced again
        "/v1/hosts/{name}/repair",  # what is repaired needs no repair
        "/v1/images/{reference}/release",  # of one that is not held: nothing
        "/v1/login",  # a code is good once, and gives a token that ends by itself
        "/v1/plans/{id}/replay",  # computes, and changes nothing
        "/v1/rounds/{number}/replay",
        "/v1/rounds/{number}/second-policy",
    }
)


@pytest.fixture(autouse=True)
def image_store(api: Api, tmp_path: Path) -> None:
    """Let images be uploaded."""
    store = ImageStore(tmp_path / "images", max_bytes=4096)
    api.app.state.services = replace(api.app.state.services, images=store)


@pytest.fixture(autouse=True)
def nobody_simulates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start no simulations: they speak to the database in a thread of their own."""
    monkeypatch.setattr(WhatIfExecutor, "start", lambda *_: None)


def test_every_creating_route_is_tried(api: Api):
    with_a_key, without = set(), set()
    for path, operations in api.app.openapi()["paths"].items():
        if "post" in operations:
            names = {each["name"] for each in operations["post"].get("parameters", ())}
            (with_a_key if "Idempotency-Key" in names else without).add(path)

    assert {name.partition(" ")[0] for name in CALLS} == with_a_key
    assert without == WITHOUT_A_KEY


@pytest.mark.parametrize("route", CALLS)
def test_it_does_its_work_once_wherever_its_process_dies(
    api: Api, raw: RawSql, death: Death, route: str
):
    """Each call with one key dies one step later, until one is answered."""
    call = CALLS[route](api)
    before, commits = call.count(raw), death.commits

    for point in range(MAX_POINTS):
        with death.at(point):
            answer = call.post(api, "k")
        if answer.status_code < 500:
            break
    again = call.post(api, "k")

    assert answer.status_code in (200, 201, 202), answer.text
    assert point >= 2  # deaths around a commit at least
    assert death.commits > commits
    assert call.count(raw) == before + 1
    assert (again.status_code, again.text) == (answer.status_code, answer.text)
    assert again.headers["idempotency-replayed"] == "true"


@pytest.mark.parametrize("route", CALLS)
def test_it_is_answered_again_as_the_first_time_and_another_body_is_refused(
    api: Api, raw: RawSql, route: str
):
    call = CALLS[route](api)
    before = call.count(raw)

    first = call.post(api, "k")
    again = call.post(api, "k")
    if call.other is not None:
        the_problem(call.post(api, "k", call.other), 422, "idempotency_key_reused")

    assert first.status_code in (200, 201, 202), first.text
    assert (again.status_code, again.text) == (first.status_code, first.text)
    assert "idempotency-replayed" not in first.headers
    assert again.headers["idempotency-replayed"] == "true"
    assert call.count(raw) == before + 1


@pytest.mark.parametrize(
    "route", ["/v1/moves", "/v1/plans", "/v1/reservations", "/v1/rolls", "/v1/tokens"]
)
def test_calls_at_the_same_moment_do_their_work_once(api: Api, raw: RawSql, route: str):
    call = CALLS[route](api)
    before = call.count(raw)

    with ThreadPoolExecutor(6) as callers:
        answers = list(callers.map(lambda _: call.post(api, "k"), range(6)))

    assert len({answer.text for answer in answers}) == 1, [answer.text for answer in answers]
    assert call.count(raw) == before + 1
