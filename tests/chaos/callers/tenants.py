"""Tenants that ask and give back without pause, and write down what they were told."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx

from tests.chaos import guests
from tests.chaos.callers.volumes import MOST, SIZE_GIB, VolumeOwner
from tests.chaos.processes import WAIT_S
from tests.chaos.record import Record
from tests.chaos.site import IMAGE, TENANTS, TYPES, Site

MAX_VCPUS_EACH = 4  #: a little more, all together, than the hosts have
KEPT_VCPUS_EACH = 2  #: of them, in VMs that are given back only at the end
SPOT_PART = 0.2  #: of requests
ELASTIC_PART = 0.4  #: of the other requests, as long as a tenant has no elastic one
MAX_BORROWED = 4  #: VMs of an elastic request
SCALE_PART = 0.15  #: of the times at which a tenant with an elastic request does anything
IMAGE_PART = 0.5  #: of requests
NEW_VOLUME_PART = 0.4  #: of requests of a tenant with few volumes
VOLUME_PART = 0.35  #: of the times at which a tenant does anything
RESERVE_PART = 0.15  #: of the times at which a tenant would ask
_PAUSE_S = (0.5, 2.0)
#: Of reservations: from now until they begin, and how long they last.
_BEGIN_S, _LAST_S = (0.0, 10.0), (10, 60)
_LIVES_S = (0.5, 30.0)  #: of what is not kept; some are given back before they are built


@dataclass(kw_only=True)
class Tenant(VolumeOwner):
    """One tenant: holds some requests, asks for more, gives some back."""

    stop: threading.Event
    with_volumes: bool
    held: dict[str, int] = field(default_factory=dict)  #: vCPUs by id of request
    kept: set[str] = field(default_factory=set)  #: requests that outlive the faults
    due: dict[str, float] = field(default_factory=dict)  #: when the others are given back
    reserved: dict[str, float] = field(default_factory=dict)  #: when each is over, at the latest
    elastic: dict[str, str] = field(default_factory=dict)  #: VM types by id of request
    _number: int = 0

    def run(self) -> None:
        while not self.stop.wait(self.rng.uniform(*_PAUSE_S)):
            room = MAX_VCPUS_EACH - sum(self.held.values())
            first = min(self.due, key=self.due.__getitem__, default=None)
            if self.with_volumes and self.rng.random() < VOLUME_PART:
                self.change_volumes()
            elif first is not None and self.due[first] <= time.monotonic():
                del self.due[first]
                self.give_back(first)
            elif self.elastic and self.rng.random() < SCALE_PART:
                self.scale(self.rng.choice(sorted(self.elastic)), room)
            elif self.reserved and self.rng.random() < 0.5:
                self.use_reservation(self.rng.choice(sorted(self.reserved)), room)
            elif room > 0 and self.rng.random() < RESERVE_PART:
                self.reserve()
            elif room > 0:
                self.ask(room)

    def reserve(self) -> None:
        """Reserve room for one VM, soon and for a short time."""
        begins = datetime.now(UTC) + timedelta(seconds=self.rng.uniform(*_BEGIN_S))
        for_s = self.rng.randint(*_LAST_S)
        body = {
            "vm_type": "tiny", "count": 1, "starts_at": begins.isoformat(), "for_s": for_s
        }  # fmt: skip
        answer = self.call("POST", "/v1/reservations", body, self.new_key())
        if answer.status_code == 202:
            self.counts["reservations asked for"] += 1
            self.reserved[answer.json()["id"]] = time.monotonic() + _BEGIN_S[1] + for_s
        else:
            self.refused(f"{self.name}'s reservation", answer)

    def use_reservation(self, key: str, room: int) -> None:
        """Draw on a reservation if it is in force; cancel some, and what has not ended in time.

        For an hour after a step ahead of the clock nothing ends by itself.
        """
        if self.reserved[key] <= time.monotonic() or self.rng.random() < 0.2:
            del self.reserved[key]
            answer = self.call("DELETE", f"/v1/reservations/{key}")
            if answer.status_code not in (202, 409):  # 409: it is over
                self.refused(f"the end of {self.name}'s reservation", answer)
        elif room > 0 and self.call("GET", f"/v1/reservations/{key}").json()["left"]:
            self.ask(room, reservation=key)

    def refused(self, what: str, answer: httpx.Response) -> None:
        self.record.write("refused", name=what, status=answer.status_code, said=answer.text)

    def ask(self, room: int, reservation: str | None = None) -> None:
        self._number += 1
        if reservation is not None:
            room = TYPES["tiny"]
        vm_type = self.rng.choice([name for name, vcpus in TYPES.items() if vcpus <= room])
        count = self.rng.randint(1, min(3, room // TYPES[vm_type]))
        key, name = self.new_key(), f"{self.name}-{self._number}"
        body: dict[str, Any] = {
            "name": name,
            "vm_type": vm_type,
            "count": count,
            "user_data": guests.USER_DATA,
        }
        if self.rng.random() < IMAGE_PART:
            body["image"] = IMAGE
            self.counts["VMs asked for with an image"] += count
        volumes = self.with_volumes and reservation is None and len(self.volumes) < MOST
        if volumes and self.rng.random() < NEW_VOLUME_PART:
            body["new_volumes"] = [{"name": f"{name}-data", "size_gib": SIZE_GIB}]
            self.counts["new volumes asked for"] += count
        if reservation is not None:
            body["reservation"] = reservation
        elif self.rng.random() < SPOT_PART:
            body["spot"] = True
            self.counts["spot VMs asked for"] += count
        elif not self.elastic and "new_volumes" not in body and self.rng.random() < ELASTIC_PART:
            body["max_count"] = count + self.rng.randint(1, MAX_BORROWED)
        self.record.write(
            "asking",
            tenant=self.name,
            key=key,
            **{part: body.get(part) for part in ("name", "vm_type", "count", "max_count")},
        )
        answer = self.call("POST", "/v1/requests", body, key)
        shown = {"tenant": self.name, "key": key, "name": name}
        if answer.status_code == 201:
            self.counts["accepted"] += 1
            self.counts["VMs asked for"] += count
            request_id = answer.json()["id"]
            self.held[request_id] = count * TYPES[vm_type]
            if "max_count" in body:
                self.counts["elastic requests accepted"] += 1
                self.elastic[request_id] = vm_type
            if sum(self.held[each] for each in {*self.kept, request_id}) <= KEPT_VCPUS_EACH:
                self.kept.add(request_id)
            else:
                self.due[request_id] = time.monotonic() + self.rng.uniform(*_LIVES_S)
            self.record.write("accepted", id=request_id, **shown)
            self.counts["draws on reservations"] += reservation is not None
        elif reservation is not None and answer.status_code == 409:
            # Its time has not come, or is over.
            self.record.write("not_drawn", said=answer.text, **shown)
        else:
            self.counts["refused"] += 1
            self.record.write("refused", status=answer.status_code, said=answer.text, **shown)

    def scale(self, request_id: str, room: int) -> None:
        """Set both bounds of an elastic request; with no maximum it is elastic no longer."""
        vcpus = TYPES[self.elastic[request_id]]
        count = self.rng.randint(1, max(1, (room + self.held[request_id]) // vcpus))
        most = count + self.rng.randint(0, MAX_BORROWED)
        body = {"count": count, "max_count": most}
        answer = self.call("PATCH", f"/v1/requests/{request_id}", body)
        if answer.status_code != 200:
            self.refused(f"the scaling of {self.name}'s {request_id} to {count}..{most}", answer)
            return
        self.counts["elastic requests scaled"] += 1
        self.held[request_id] = count * vcpus
        if most == count:
            del self.elastic[request_id]
        self.record.write("scaled", tenant=self.name, id=request_id, **body)

    def give_back(self, request_id: str) -> None:
        self.record.write("deleting", tenant=self.name, id=request_id)
        answer = self.call("DELETE", f"/v1/requests/{request_id}")
        if answer.status_code == 202:
            self.counts["deleted"] += 1
            del self.held[request_id]
            self.elastic.pop(request_id, None)
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


class Load:
    """All tenants, each in a thread."""

    def __init__(self, site: Site, record: Record, seed: int, *, volumes: bool) -> None:
        self.stop = threading.Event()
        self.tenants = [
            Tenant(
                name=name,
                site=site,
                record=record,
                rng=random.Random(f"{seed} {name}"),
                stop=self.stop,
                with_volumes=volumes,
            )
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
        for tenant in self.tenants:
            tenant.remove_volumes()

    def counts(self) -> Counter[str]:
        return sum((tenant.counts for tenant in self.tenants), Counter())
