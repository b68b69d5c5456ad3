"""Several processes and threads at once: nothing is lost, nobody is above capacity."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from registry import (
    AnsweredBeforeError,
    CapacityExceededError,
    Registry,
    RegistryUnavailableError,
    StaleEpochError,
)
from registry.audit import IdempotencyKey
from registry.rounds import CONTROL_LEASE, Placement
from tests.register import a_cluster, a_commit, a_report, add_host, add_request, place, take_lease

ROOT = Path(__file__).parents[3]

# Places VMs one by one, as fast as it can, under the lease that is given.
PLACER = """
import json, sys
from uuid import UUID
from registry import CapacityExceededError, Registry
from registry.rounds import Lease, Placement
from tests.register import a_commit, now
url, holder, epoch, request, host, tries = sys.argv[1:]
registry = Registry.connect(url)
lease = Lease(name="control", holder=holder, epoch=int(epoch), expires_at=now())
counts = {"placed": 0, "dropped": 0, "refused": 0}
for _ in range(int(tries)):
    version = registry.hosts.get(host).version
    key = registry.hosts.get(host).id
    part = Placement(request_id=UUID(request), host_id=key, count=1)
    try:
        done = registry.rounds.commit_round(a_commit(lease, (part,), {key: version}))
    except CapacityExceededError:
        counts["refused"] += 1
    else:
        counts["placed"] += len(done.assignment_ids)
        counts["dropped"] += len(done.dropped)
print(json.dumps(counts))
"""

# Claims whatever is due until nothing is left.
WORKER = """
import json, sys
from uuid import UUID
from registry import ClaimLostError, Registry
url, owner, *keys = sys.argv[1:]
registry = Registry.connect(url)
won = []
for key in keys:
    build = registry.assignments.claim_build(UUID(key), owner, 600)
    if build is not None:
        registry.assignments.activate(build.claim)
        registry.assignments.mark_running(build.claim)
        won.append(key)
print(json.dumps(won))
"""


def start(program: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", program, *(str(each) for each in arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)


def answers(processes: list[subprocess.Popen[str]]) -> list[Any]:
    found = []
    for process in processes:
        out, _ = process.communicate(timeout=300)
        assert process.returncode == 0
        found.append(json.loads(out))
    return found


def test_processes_that_commit_at_once_never_exceed_a_host(
    register: Registry, register_url: str
) -> None:
    a_cluster(register)
    request = add_request(register, 60)
    lease = take_lease(register)
    arguments = (register_url, lease.holder, lease.epoch, request.id, "h1", 25)

    answered = answers([start(PLACER, *arguments) for _ in range(3)])

    counts = sum((Counter(each) for each in answered), Counter())
    host = register.hosts.get("h1")
    held = [each.committed for each in host.inventories]
    assert counts["placed"] + counts["dropped"] + counts["refused"] == 75
    assert held[0] == counts["placed"] <= 16
    assert all(each.committed <= each.capacity for each in host.inventories)
    assert register.requests.get(request.id).vms_placed == counts["placed"]
    assert register.check() == []


def test_each_assignment_is_claimed_by_one_of_several_processes(
    register: Registry, register_url: str
) -> None:
    a_cluster(register)
    host = register.hosts.update("h1", max_builds=64, actor="test")
    keys = place(register, add_request(register, 10), host, 10).assignment_ids

    won = answers([start(WORKER, register_url, f"w{n}", *keys) for n in range(3)])

    claimed = [UUID(key) for each in won for key in each]
    assert sorted(claimed) == sorted(keys)
    assert register.requests.list().items[0].vms_running == 10
    assert register.check() == []


def test_of_threads_that_want_the_lease_one_gets_it(register: Registry) -> None:
    with ThreadPoolExecutor(8) as pool:
        leases = list(
            pool.map(lambda n: register.leases.acquire(CONTROL_LEASE, f"cc-{n}", 60), range(24))
        )

    assert sum(lease is not None for lease in leases) <= 3  # one holder, its own renewals
    assert len({lease.holder for lease in leases if lease is not None}) == 1


def test_threads_that_repeat_a_key_make_one_request(register: Registry) -> None:
    a_cluster(register)
    key = IdempotencyKey(scope="tenant:a", key="k", fingerprint="f")

    def ask(_: int) -> str:
        try:
            return str(add_request(register, 3, idempotency=key).id)
        except AnsweredBeforeError as before:
            return before.body or ""

    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(ask, range(12)))

    [made] = register.requests.list().items
    assert answers.count(str(made.id)) == 1
    assert all(str(made.id) in answer for answer in answers)
    assert len(register.vms.list().items) == 3


def test_reports_requests_and_rounds_at_once_lose_nothing(register: Registry) -> None:
    hosts = a_cluster(register, hosts=4)
    lease = take_lease(register)

    def report(number: int) -> None:
        register.hosts.record_report(hosts[number % 4].id, a_report())

    def ask(_: int) -> None:
        add_request(register, 2)

    def decide(_: int) -> None:
        view = register.rounds.read_cluster(lease)
        versions = {host.id: host.version for host in view.hosts}
        parts = tuple(
            Placement(request_id=each.id, host_id=view.hosts[index % 4].id, count=1)
            for index, each in enumerate(view.requests[:8])
        )
        with contextlib.suppress(CapacityExceededError):
            register.rounds.commit_round(a_commit(lease, parts, versions))

    jobs = [
        job for number in range(8) for job in ((report, number), (ask, number), (decide, number))
    ]
    with ThreadPoolExecutor(6) as pool:
        for done in [pool.submit(job, number) for job, number in jobs]:
            done.result()

    assert len(register.requests.list().items) == 8
    assert register.check() == []


def test_a_read_sees_one_point_in_time(register: Registry) -> None:
    """Whatever is committed meanwhile: what tenants hold is what hosts have committed."""
    (host,) = a_cluster(register)
    request = add_request(register, 10)
    lease = take_lease(register)

    def place_all() -> None:
        for _ in range(10):
            place(register, request, host, 1, lease)

    with ThreadPoolExecutor(1) as pool:
        placing = pool.submit(place_all)
        while not placing.done():
            view = register.rounds.read_cluster(lease)
            held = view.tenants[0].held
            waiting = view.requests[0].count if view.requests else 0
            assert held == view.hosts[0].committed
            assert held[0] + waiting == 10
        placing.result()


def test_a_commit_waits_for_no_reader(register: Registry) -> None:
    a_cluster(register)
    lease = take_lease(register)
    database = register._database

    with database.read() as connection:
        connection.exec_driver_sql("SELECT count(*) FROM hosts").scalar_one()
        add_host(register, "h2")
        seen = connection.exec_driver_sql("SELECT count(*) FROM hosts").scalar_one()

    assert seen == 1
    assert len(register.rounds.read_cluster(lease).hosts) == 2


def test_a_reader_cannot_write(register: Registry) -> None:
    with (
        pytest.raises(RegistryUnavailableError, match=r"read.?only"),
        register._database.read() as connection,
    ):
        connection.exec_driver_sql("DELETE FROM events")


def test_a_stale_epoch_loses_the_race(register: Registry) -> None:
    lease = take_lease(register)
    register.leases.release(lease)
    take_lease(register, "cc-2")

    with ThreadPoolExecutor(4) as pool:
        outcomes = [
            pool.submit(register.rounds.commit_round, a_commit(lease)).exception() for _ in range(4)
        ]

    assert all(isinstance(each, StaleEpochError) for each in outcomes)
    assert register.rounds.last() is None
