"""Tenants that ask and give back without pause, and write down what they were told."""

from __future__ import annotations

import json
import random
import threading
import time
import uuid
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tests.chaos.processes import WAIT_S
from tests.chaos.site import TENANTS, TYPES, Site

MAX_VCPUS_EACH = 4  #: a little more, all together, than the hosts have
KEPT_VCPUS_EACH = 2  #: of them, in VMs that are given back only at the end
_PAUSE_S = (0.5, 2.0)
_LIVES_S = (0.5, 30.0)  #: of what is not kept; some are given back before they are built
_AGAIN_S = 0.5


class Record:
    """A file of what happened, a JSON object per line, written before anything else is done."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()

    def write(self, what: str, **values: Any) -> None:
        line = json.dumps({"what": what, "at": time.time(), **values})
        with self._lock, self.path.open("a") as file:
            file.write(line + "\n")

    def read(self) -> list[dict[str, Any]]:
        if not self.path.exists():
            return []
        return [json.loads(line) for line in self.path.read_text().splitlines()]


@dataclass
class Tenant:
    """One tenant: holds some requests, asks for more, gives some back."""

    name: str
    site: Site
    record: Record
    rng: random.Random
    stop: threading.Event
    counts: Counter[str] = field(default_factory=Counter)
    held: dict[str, int] = field(default_factory=dict)  #: vCPUs by id of request
    kept: set[str] = field(default_factory=set)  #: requests that outlive the faults
    due: dict[str, float] = field(default_factory=dict)  #: when the others are given back
    _number: int = 0

    def run(self) -> None:
        while not self.stop.wait(self.rng.uniform(*_PAUSE_S)):
            room = MAX_VCPUS_EACH - sum(self.held.values())
            first = min(self.due, key=self.due.__getitem__, default=None)
            if first is not None and self.due[first] <= time.monotonic():
                del self.due[first]
                self.give_back(first)
            elif room > 0:
                self.ask(room)

    def ask(self, room: int) -> None:
        self._number += 1
        vm_type = self.rng.choice([name for name, vcpus in TYPES.items() if vcpus <= room])
        count = self.rng.randint(1, min(3, room // TYPES[vm_type]))
        body = {"name": f"{self.name}-{self._number}", "vm_type": vm_type, "count": count}
        key = str(uuid.UUID(int=self.rng.getrandbits(128)))
        self.record.write("asking", tenant=self.name, key=key, **body)
        answer = self._call("POST", "/v1/requests", body, key)
        told = {"tenant": self.name, "key": key, "name": body["name"]}
        if answer.status_code == 201:
            self.counts["accepted"] += 1
            self.counts["VMs asked for"] += count
            request_id = answer.json()["id"]
            self.held[request_id] = count * TYPES[vm_type]
            if sum(self.held[each] for each in {*self.kept, request_id}) <= KEPT_VCPUS_EACH:
                self.kept.add(request_id)
            else:
                self.due[request_id] = time.monotonic() + self.rng.uniform(*_LIVES_S)
            self.record.write("accepted", id=request_id, **told)
        else:
            self.counts["refused"] += 1
            self.record.write("refused", status=answer.status_code, said=answer.text, **told)

    def give_back(self, request_id: str) -> None:
        self.record.write("deleting", tenant=self.name, id=request_id)
        answer = self._call("DELETE", f"/v1/requests/{request_id}", None, None)
        if answer.status_code == 202:
            self.counts["deleted"] += 1
            del self.held[request_id]
            self.record.write("deleted", tenant=self.name, id=request_id)
        else:
            self.counts["refused"] += 1
            self.record.write(
                "not_deleted",
                tenant=self.name,
                id=request_id,
                status=answer.status_code,
                said=answer.text,
            )

    def _call(self, method: str, path: str, body: object, key: str | None) -> httpx.Response:
        """Call until somebody answers, each time another API."""
        headers = {} if key is None else {"Idempotency-Key": key}
        api = self.rng.randrange(len(self.site.api_urls))
        while True:
            try:
                with self.site.client(self.name, api) as client:
                    answer = client.request(method, path, json=body, headers=headers)
                if not _try_again(answer):
                    return answer
                self.counts[f"answered {answer.status_code}, retried"] += 1
                if answer.status_code == 500:
                    self.record.write("failed", call=f"{method} {path}", said=answer.text)
            except httpx.HTTPError:
                self.counts["unanswered, retried"] += 1
            api = (api + 1) % len(self.site.api_urls)
            time.sleep(_AGAIN_S)


def _try_again(answer: httpx.Response) -> bool:
    """Its database was away, it is too busy, or the first try is still under way."""
    return answer.status_code in (429, 500, 502, 503, 504) or (
        answer.status_code == 409 and answer.json()["code"] == "idempotency_in_progress"
    )


class Load:
    """All tenants, each in a thread."""

    def __init__(self, site: Site, record: Record, seed: int) -> None:
        self.stop = threading.Event()
        self.tenants = [
            Tenant(name, site, record, random.Random(f"{seed} {name}"), self.stop)
            for name in TENANTS
        ]
        self._threads = [
            threading.Thread(target=tenant.run, name=tenant.name, daemon=True)
            for tenant in self.tenants
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """Ask for nothing new, and wait for every answer that is due."""
        self.stop.set()
        for thread in self._threads:
            thread.join(WAIT_S)
            assert not thread.is_alive(), f"tenant {thread.name} still waits for an answer"

    def give_all_back(self) -> None:
        for tenant in self.tenants:
            for request_id in sorted(tenant.held):
                tenant.give_back(request_id)

    def counts(self) -> Counter[str]:
        return sum((tenant.counts for tenant in self.tenants), Counter())
