"""Count the files of ours that a call and a round pass, and the transactions that they open.

Usage: python -m scripts.walk

The call is a POST /v1/requests to an API in this process, on SQLite, with an Idempotency-Key, as
our own client sends it; the round is the slot of the control centre that places its VMs. A file is
passed when code of a function in it runs, in whatever thread. A single statement that reads is no
transaction: on PostgreSQL it runs outside of any. The policy decides in a process of its own, as it
does in a site: what that passes is not counted, nor is what writes the log. Each walk is the second
of its kind, so that imports and what is read once for good are not in it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import tempfile
import threading
import time
import traceback
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any, Final

import httpx
import structlog
from fastapi import FastAPI
from sqlalchemy import Connection, Engine, event

from controller.control_center.leadership import Leadership
from controller.control_center.metrics import SlotMetrics
from controller.control_center.slot_loop import SlotLoopRunner
from controller.rest.app import create_app
from controller.rounds.interfaces import PolicyChoice, Slot
from controller.rounds.policy_process import PolicyProcess
from registry import Registry, upgrade
from registry.hosts import HostReport, NewHost
from scripts.house import packages
from service import ProcessMetrics

ROOT: Final = Path(__file__).resolve().parents[1]
ACTOR: Final = "walk"
_CAPACITY: Final = {"vcpus": 16, "memory_mib": 65536, "disk_gib": 1000}
_DEMAND: Final = {"vcpus": 1, "memory_mib": 1024, "disk_gib": 10}
_BODY: Final = {"vm_type": "small", "count": 2}
_SLOT_S: Final = 60.0
#: How `registry.db.engine.Database` opens transactions.
_GROUND: Final = "registry/db/"
_ENGINE: Final = f"{_GROUND}engine.py"
_KINDS: Final = frozenset({"write", "read", "rehearse"})


@dataclass(frozen=True, slots=True)
class Transaction:
    """One transaction, and the function that opened it."""

    kind: str  #: write, read, rehearse; or look: one statement, outside of any on PostgreSQL
    opened_by: str


@dataclass(frozen=True, slots=True)
class Walk:
    """What was passed on one way through the house."""

    name: str
    functions: Counter[str]  #: that were called, by file
    begun: Sequence[Transaction]  #: looks among them

    @property
    def files(self) -> Sequence[str]:
        """Return the files that were passed, in the order of their names."""
        return sorted(self.functions)

    @property
    def transactions(self) -> Sequence[Transaction]:
        """Return what is a transaction on PostgreSQL, too."""
        return [each for each in self.begun if each.kind != "look"]


class Tracer:
    """Notes which of our functions run while it is on, also in threads that begin then."""

    def __init__(self) -> None:
        self._ours = frozenset(packages())
        self._codes: dict[Any, str | None] = {}  #: file of each code object; None: not ours
        self._seen: set[Any] = set()
        self._begun: list[Transaction] = []

    @contextlib.contextmanager
    def tracing(self) -> Iterator[None]:
        """Trace the functions that run in the block."""
        event.listen(Engine, "begin", self._begin)
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
            event.remove(Engine, "begin", self._begin)

    def walk(self, name: str) -> Walk:
        """Return the recorded walk."""
        files = Counter(path for code in self._seen if (path := self._codes[code]) is not None)
        return Walk(name, files, tuple(self._begun))

    def _profile(self, frame: FrameType, what: str, _: object) -> None:
        if what == "call":
            self._path(frame)
            self._seen.add(frame.f_code)

    def _path(self, frame: FrameType) -> str | None:
        """Return the path of a frame's file from the root; None: it is not of ours."""
        code = frame.f_code
        if code not in self._codes:
            path = Path(code.co_filename)
            inside = path.relative_to(ROOT) if path.is_relative_to(ROOT) else None
            is_ours = inside is not None and inside.parts[0] in self._ours
            # What a module does when it is imported is nobody's walk.
            self._codes[code] = str(inside) if is_ours and code.co_name != "<module>" else None
        return self._codes[code]

    def _begin(self, _: Connection) -> None:
        # A look begins at its statement, when the function that gave the connection has returned.
        kind, opened_by = "look", "?"
        for frame, _number in traceback.walk_stack(sys._getframe(1)):
            path, code = self._path(frame), frame.f_code
            if path == _ENGINE and code.co_name in _KINDS:
                kind = code.co_name
            elif path is not None and not path.startswith(_GROUND):
                opened_by = f"{path}:{code.co_qualname}"
                break
        self._begun.append(Transaction(kind, opened_by))


def walks(folder: Path) -> tuple[Walk, Walk]:
    """Return the walks of a call that asks for VMs and of the round that places them."""
    url = f"sqlite:///{folder}/fuga.db"
    upgrade(url)
    registry = Registry.connect(url)
    try:
        with _silence_logs():
            return _walks(registry)
    finally:
        registry.close()


def _walks(registry: Registry) -> tuple[Walk, Walk]:
    token = _add_host_type_and_tenant(registry)
    app = create_app(registry)
    decider = PolicyProcess()
    try:
        slots = _SlotLoopThread(registry, decider)
        _call_api(app, token)
        slots.run()

        asking, deciding = Tracer(), Tracer()
        with asking.tracing():
            _call_api(app, token)
        with deciding.tracing():
            slots.run()
    finally:
        decider.close()
    placed = registry.rounds.last()
    if placed is None or placed.placed != _BODY["count"]:
        raise RuntimeError(f"the round placed nothing or not all that was requested: {placed}")
    return asking.walk("POST /v1/requests"), deciding.walk("a round")


def _add_host_type_and_tenant(registry: Registry) -> str:
    """Add a host that is up, a VM type and a tenant; return a token of that tenant."""
    registry.vm_types.add("small", _DEMAND, actor=ACTOR)
    registry.tenants.add("a", weight=1.0, actor=ACTOR)
    host = registry.hosts.add(NewHost(name="h1", uri="qemu+tls://h1/system"), actor=ACTOR)
    seen_at = registry.now()
    report = HostReport(
        hostname="h1",
        detected=_CAPACITY,
        cpu_busy_percent=None,
        memory_used_mib=None,
        disk_used_gib=None,
        domains=(),
        volumes=(),
        started_at=seen_at,
        polled_at=seen_at,
        took_ms=1,
        can_filter=True,
    )
    registry.hosts.record_report(host.id, report)
    return registry.tokens.create("tenant", "a", "walk", actor=ACTOR)[1]


class _SlotLoopThread:
    """The slot loop of a control centre that leads, one slot after another."""

    def __init__(self, registry: Registry, decider: PolicyProcess) -> None:
        metrics = SlotMetrics(ProcessMetrics("control"))
        self._leadership = Leadership(registry, "walk", lease_s=_SLOT_S)
        choice = PolicyChoice(
            name="fuga", parameters={}, budget_units=None, decision_time_s=_SLOT_S, seed=1
        )
        self._loop = SlotLoopRunner(
            registry,
            self._leadership,
            decider,
            choice,
            slot_length_s=_SLOT_S,
            on_committed=lambda: None,
            metrics=metrics,
        )

    def run(self) -> None:
        """Run one slot."""
        lease = self._leadership.take()
        if lease is None:
            raise RuntimeError("the lease of a new register center is not to be had")
        slot = Slot(start_at=datetime.fromtimestamp(int(time.time()), UTC), length_s=_SLOT_S)
        self._loop.run_slot(slot, lease)


def _call_api(app: FastAPI, token: str) -> None:
    headers = {"Authorization": f"Bearer {token}", "Idempotency-Key": uuid.uuid4().hex}
    asyncio.run(_post_request(app, headers))


async def _post_request(app: FastAPI, headers: Mapping[str, str]) -> None:
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://walk") as client:
        (await client.post("/v1/requests", json=_BODY, headers=headers)).raise_for_status()


@contextlib.contextmanager
def _silence_logs() -> Iterator[None]:
    """Let nothing be logged, as in a site whose log level is above what goes well."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    try:
        yield
    finally:
        structlog.configure(**before)


def main() -> int:
    """Print both walks."""
    with tempfile.TemporaryDirectory() as folder:
        for walk in walks(Path(folder)):
            print(f"{walk.name}: {len(walk.files)} files, {len(walk.transactions)} transactions")
            for path in walk.files:
                print(f"    {path} ({walk.functions[path]} functions)")
            for each in walk.begun:
                what = "one statement" if each.kind == "look" else f"{each.kind} transaction"
                print(f"    {what}, begun in {each.opened_by}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
