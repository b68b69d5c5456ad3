"""Documents that the API answers with, and what a command printed that got them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

REQUEST_ID = "0193a000-0000-7000-8000-000000000001"
VM_ID = "0193a111-0000-7000-8000-000000000002"


def a_request(**changes: Any) -> dict[str, Any]:
    return {
        "id": REQUEST_ID,
        "name": "web",
        "tenant": "a",
        "vm_type": "small",
        "count": 4,
        "min_count": 1,
        "requires": [],
        "hosts": None,
        "state": "pending",
        "waiting": None,
        "vms_wanted": 4,
        "vms_placed": 0,
        "vms_running": 0,
        "created_at": "2026-01-01T00:00:00Z",
        "updated_at": "2026-01-01T00:00:00Z",
        **changes,
    }


def a_vm(**changes: Any) -> dict[str, Any]:
    return {
        "id": VM_ID,
        "name": "web-1",
        "request_id": REQUEST_ID,
        "tenant": "a",
        "vm_type": "small",
        "host": "host-1",
        "desired": "running",
        "observed": "running",
        "assignment_id": "0193a222-0000-7000-8000-000000000003",
        "assignment_state": "active",
        "round": 3,
        "generation": 1,
        "last_error": None,
        "power": None,
        "created_at": "2026-01-01T00:00:00Z",
        "deleted_at": None,
        **changes,
    }


def a_host(**changes: Any) -> dict[str, Any]:
    inventory = {
        "resource": "vcpus",
        "detected": 8,
        "override": None,
        "reserved": 0,
        "foreign": 0,
        "ratio_thousandths": 1500,
        "committed": 3,
        "capacity": 12,
    }
    return {
        "name": "host-1",
        "uri": "qemu+tcp://192.0.2.1/system",
        "admin": "active",
        "health": "up",
        "labels": ["ssd"],
        "inventories": [inventory],
        "last_polled_at": "2026-01-01T00:00:00Z",
        "last_error": None,
        **changes,
    }


@dataclass
class Ended:
    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Fuga = Callable[..., Ended]
