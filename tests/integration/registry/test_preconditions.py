"""What an update rests on is judged behind locks that are taken in the order of all others."""

from __future__ import annotations

import re
from collections.abc import Callable
from uuid import UUID

import pytest

from registry import Precondition, Registry
from tests.register import ACTOR, a_cluster, add_request
from tests.work import work

CHANGES: dict[str, Callable[[Registry, UUID], object]] = {
    "resize": lambda register, key: register.requests.change(key, count=2, actor=ACTOR),
    "label": lambda register, key: register.requests.change(key, labels={"a": "b"}, actor=ACTOR),
    "extend": lambda register, key: register.requests.change(key, ttl_s=60, actor=ACTOR),
    "delete": lambda register, key: register.requests.delete(key, actor=ACTOR),
}
#: Of `registry.db.locks`.
ORDER = (
    *("tenants", "hosts", "vm_groups", "vms"),
    *("assignments", "volumes", "inventories", "requests"),
)
LOCKED = re.compile(r"FROM (\w+).*FOR NO KEY UPDATE", re.DOTALL)


@pytest.mark.parametrize("change", CHANGES)
def test_a_condition_on_a_request_keeps_the_order_of_locks(register: Registry, change: str) -> None:
    a_cluster(register)
    request = add_request(register, 3)
    judged: list[object] = []

    def check(inside: Registry) -> None:
        judged.append(inside.requests.get(request.id))

    with work() as done:
        CHANGES[change](
            register.for_call(None, Precondition("request", request.id, check)), request.id
        )

    locked = [found[1] for each in done.statements if (found := LOCKED.search(each))]
    first = list(dict.fromkeys(locked))
    assert first == sorted(first, key=ORDER.index)
    assert len(judged) == 1
