"""Anything may happen in any order: the register center stays well.

Hypothesis drives requests, rounds, workers that die, reports, misses,
fencing, deletions and passing time against one register center. After every step the
doctor finds nothing, no VM has two places, and nothing was ever released
without proof or before anybody claimed it.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from registry import (
    CapacityExceededError,
    ClaimLostError,
    ConflictError,
    HostAdmin,
    HostAdminEvent,
    Registry,
)
from registry.hosts import FailurePolicy, FenceOrder
from registry.requests import WaitingStatus
from registry.rounds import Placement
from registry.tasks import Build, Claim
from tests.raw_sql import raw_sql
from tests.register import (
    ACTOR,
    a_cluster,
    a_commit,
    a_domain,
    a_report,
    a_stranger,
    add_request,
    now,
    take_lease,
)
from tests.selection import examples
from tests.servers.postgres import TEMPLATE, PostgresServer

HOSTS = ("h1", "h2", "h3")
PAST = "'2020-01-01 00:00:00.000000'"
hosts = st.sampled_from(HOSTS)


class Cluster(RuleBasedStateMachine):
    """Domains really exist only in ``domains``: what workers made and did not remove."""

    builds = Bundle("builds")
    removals = Bundle("removals")
    orders = Bundle("orders")
    database: Callable[[], AbstractContextManager[str]]  #: a fresh one, by its URL

    def __init__(self) -> None:
        super().__init__()
        self.stack = contextlib.ExitStack()
        url = self.stack.enter_context(type(self).database())
        self.raw = self.stack.enter_context(raw_sql(url))
        self.registry = Registry.connect(url)
        self.stack.callback(self.registry.close)
        a_cluster(self.registry, hosts=len(HOSTS))
        self.lease = take_lease(self.registry)
        self.domains: dict[UUID, Build] = {}  # by assignment
        self.running: set[UUID] = set()
        self.off: dict[UUID, Build] = {}  # likewise; of hosts that were switched off since

    def teardown(self) -> None:
        self.stack.close()

    def due(self) -> Iterator[UUID]:
        self.raw.run("UPDATE assignments SET sent_at = NULL")
        yield from (each.id for each in self.registry.assignments.send_due_tasks())

    # ---- tenants and operators ----

    @rule(count=st.integers(1, 5), tenant=st.sampled_from("ab"))
    def ask(self, count: int, tenant: str) -> None:
        add_request(self.registry, count, tenant=tenant)

    @rule(number=st.integers(0, 9))
    def delete_a_request(self, number: int) -> None:
        found = self.registry.requests.list().items
        if found:
            self.registry.requests.delete(found[number % len(found)].id, actor=ACTOR)

    @rule(number=st.integers(0, 30))
    def delete_a_vm(self, number: int) -> None:
        found = self.registry.vms.list(include_deleted=True).items
        if found:
            self.registry.vms.delete(found[number % len(found)].id, actor=ACTOR)

    @rule(host=hosts, event=st.sampled_from(HostAdminEvent))
    def operate(self, host: str, event: HostAdminEvent) -> None:
        if self.registry.hosts.get(host).admin == HostAdmin.RETIRED:
            return
        if event == HostAdminEvent.RETIRE and host != "h3":
            return
        try:
            self.registry.hosts.change_admin(host, event, actor=ACTOR)
        except ConflictError:
            assert self.registry.vms.list(host=host).items

    @rule(host=hosts, vcpus=st.integers(0, 20))
    def resize(self, host: str, vcpus: int) -> None:
        if self.registry.hosts.get(host).admin != HostAdmin.RETIRED:
            self.registry.hosts.update(host, overrides={"vcpus": vcpus}, actor=ACTOR)

    # ---- the control centre ----

    @rule(stale=st.booleans(), greedy=st.integers(1, 4), moved=st.sampled_from([None, *HOSTS]))
    def decide(self, stale: bool, greedy: int, moved: str | None) -> None:
        view = self.registry.rounds.read_cluster(self.lease)
        free = {
            host.id: min(
                (have - held) // need
                for have, held, need in zip(
                    host.capacity, host.committed, (1, 3072, 15), strict=True
                )
            )
            for host in view.hosts
            if host.accepts
        }
        parts = []
        for request in view.requests:
            for host_id, room in free.items():
                count = min(room, request.count, greedy)
                if count > 0 and host_id not in request.avoid:
                    parts.append(Placement(request_id=request.id, host_id=host_id, count=count))
                    free[host_id] -= count
                    break
        if moved is not None and self.registry.hosts.get(moved).admin != HostAdmin.RETIRED:
            self.registry.hosts.update(moved, labels=[str(now().timestamp())], actor=ACTOR)
        versions = {host.id: host.version - stale for host in view.hosts}
        waiting = {
            each.id: WaitingStatus(count=each.count, reason="no_room") for each in view.requests
        }
        commit = a_commit(self.lease, tuple(parts), versions, waiting)
        done = self.registry.rounds.commit_round(commit)  # never above capacity: it counted
        if stale:
            assert done.assignment_ids == ()

    @rule(host=hosts)
    def decide_badly(self, host: str) -> None:
        """A policy that counts wrong is stopped by the ledger."""
        view = self.registry.rounds.read_cluster(self.lease)
        seen = next((each for each in view.hosts if each.name == host), None)
        if seen is None or not view.requests:
            return
        request = view.requests[0]
        part = Placement(request_id=request.id, host_id=seen.id, count=request.count)
        commit = a_commit(self.lease, (part,), {seen.id: seen.version})
        try:
            self.registry.rounds.commit_round(commit)
        except CapacityExceededError:
            assert seen.capacity[0] - seen.committed[0] < request.count or (
                seen.capacity[1] - seen.committed[1] < 3072 * request.count
            )

    # ---- workers ----

    @rule(target=builds, number=st.integers(0, 9))
    def claim_a_build(self, number: int) -> object:
        keys = list(self.due())
        if not keys:
            return multiple()
        build = self.registry.assignments.claim_build(keys[number % len(keys)], "w", 60)
        if build is None:
            return multiple()
        self.domains[build.claim.assignment_id] = build
        self.off.pop(build.claim.assignment_id, None)
        return build

    @rule(build=consumes(builds), running=st.booleans())
    def finish_a_build(self, build: Build, running: bool) -> None:
        key = build.claim.assignment_id
        try:
            if build.state == "creating":
                self.registry.assignments.activate(build.claim)
            if running:
                self.running.add(key)
                self.registry.assignments.mark_running(build.claim)
        except ClaimLostError:
            with contextlib.suppress(ClaimLostError):  # its lease, if it is still there
                self.registry.assignments.yield_claim(build.claim, "lost")

    @rule(build=consumes(builds), transient=st.booleans())
    def fail_a_build(self, build: Build, transient: bool) -> None:
        with contextlib.suppress(ClaimLostError):
            self.registry.assignments.record_failure(build.claim, "boom", transient=transient)

    @rule(build=consumes(builds))
    def a_worker_dies(self, build: Build) -> None:
        self.raw.run(
            f"UPDATE assignments SET lease_until = {PAST} WHERE id = ?",
            self.raw.key(build.claim.assignment_id),
        )

    @rule()
    def builds_take_too_long(self) -> None:
        self.raw.run(f"UPDATE assignments SET build_began_at = {PAST}")
        for key in self.registry.assignments.end_overdue(900):
            assert self.registry.assignments.state(key) == "quarantined"

    @rule(target=removals, number=st.integers(0, 9))
    def claim_a_removal(self, number: int) -> object:
        keys = list(self.due())
        if not keys:
            return multiple()
        removal = self.registry.assignments.claim_removal(keys[number % len(keys)], "w", 60)
        return removal.claim if removal is not None else multiple()

    @rule(claim=consumes(removals))
    def remove(self, claim: Claim) -> None:
        self.domains.pop(claim.assignment_id, None)
        self.off.pop(claim.assignment_id, None)
        self.running.discard(claim.assignment_id)
        with contextlib.suppress(ClaimLostError):  # another was faster
            self.registry.assignments.release(claim)

    @rule(claim=consumes(removals))
    def give_a_removal_back(self, claim: Claim) -> None:
        with contextlib.suppress(ClaimLostError):
            self.registry.assignments.yield_claim(claim, "host does not answer")

    # ---- fencing ----

    @rule(replace=st.booleans())
    def ask_for_fencing(self, replace: bool) -> None:
        by_default = FailurePolicy.REBUILD if replace else FailurePolicy.WAIT
        for host in self.registry.fencing.request_for_failed_hosts(
            self.lease, by_default=by_default
        ):
            assert self.registry.hosts.get(host).health == "down"
            assert replace

    @rule(target=orders, host=hosts)
    def claim_a_fencing(self, host: str) -> object:
        order = self.registry.fencing.claim(self.registry.hosts.get(host).id, "w", 60)
        return multiple() if order is None else order

    @rule(order=consumes(orders), works=st.booleans())
    def end_a_fencing(self, order: FenceOrder, works: bool) -> None:
        if works:
            self.switch_off(order.host)  # whoever has the claim by now
        with contextlib.suppress(ClaimLostError):
            if works:
                self.registry.fencing.record_success(order)
                assert self.registry.vms.list(host=order.host).items == ()
            else:
                self.registry.fencing.record_failure(order, "no answer of the BMC")

    @rule(host=hosts)
    def an_operator_switches_a_host_off(self, host: str) -> None:
        if self.registry.hosts.get(host).admin == HostAdmin.RETIRED:
            return
        with contextlib.suppress(ConflictError):  # it is not down, or is being fenced
            self.registry.fencing.confirm(host, actor=ACTOR)
            self.switch_off(host)

    def switch_off(self, host: str) -> None:
        """What was there runs no more; it is still defined there."""
        for key in [key for key, build in self.domains.items() if build.host.name == host]:
            self.off[key] = self.domains.pop(key)
            self.running.discard(key)

    @rule(host=hosts)
    def clear_leftovers(self, host: str) -> None:
        for key in [key for key, build in self.off.items() if build.host.name == host]:
            if self.registry.assignments.state(key) == "released":
                del self.off[key]

    # ---- the monitor ----

    @rule(host=hosts, stranger=st.booleans(), vcpus=st.integers(2, 20))
    def report(self, host: str, stranger: bool, vcpus: int) -> None:
        found = self.registry.hosts.get(host)
        domains = [
            a_domain(build, "running" if key in self.running else "paused")
            for key, build in self.domains.items()
            if build.host.name == host
        ]
        domains += [
            a_domain(build, "stopped") for build in self.off.values() if build.host.name == host
        ]
        if stranger:
            domains.append(a_stranger())
        started = now() + timedelta(milliseconds=5)
        self.registry.hosts.record_report(
            found.id, a_report(*domains, vcpus=vcpus, started_at=started)
        )

    @rule(host=hosts)
    def miss(self, host: str) -> None:
        found = self.registry.hosts.get(host)
        self.registry.hosts.record_miss(found.id, "timeout", unreachable_after=1, down_after=3)

    @rule()
    def time_passes(self) -> None:
        for column in (
            "assignments.lease_until",
            "hosts.backoff_until",
            "host_fences.lease_until",
            "host_fences.retry_at",
        ):
            table, name = column.split(".")
            self.raw.run(f"UPDATE {table} SET {name} = {PAST} WHERE {name} IS NOT NULL")
        self.raw.run(f"UPDATE build_failures SET avoid_until = {PAST}")

    # ---- what always holds ----

    @invariant()
    def the_doctor_finds_nothing(self) -> None:
        assert self.registry.check() == []

    @invariant()
    def whatever_has_a_domain_holds_its_capacity(self) -> None:
        """A domain that may exist is never without an unreleased assignment."""
        for key in self.domains:
            assert self.registry.assignments.state(key) != "released"

    @invariant()
    def no_vm_has_two_domains(self) -> None:
        vms = [build.vm_id for build in self.domains.values()]
        assert len(vms) == len(set(vms))

    @invariant()
    def nothing_is_placed_on_hosts_that_are_retired(self) -> None:
        for host in self.registry.hosts.list(include_retired=True).items:
            if host.admin == HostAdmin.RETIRED:
                assert all(each.committed == 0 for each in host.inventories)


def settings_for(most: int) -> settings:
    return settings(
        max_examples=most,
        stateful_step_count=40,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )


@pytest.mark.shortened
@pytest.mark.sqlite
def test_anything_may_happen_on_sqlite(upgraded_database: Path) -> None:
    @contextmanager
    def database() -> Iterator[str]:
        with tempfile.TemporaryDirectory(prefix="fuga-machine-") as folder:
            shutil.copy(upgraded_database, f"{folder}/fuga.db")
            yield f"sqlite:///{folder}/fuga.db"

    run_state_machine_as_test(with_database(database), settings=settings_for(examples(12)))


@pytest.mark.shortened
@pytest.mark.postgresql
def test_anything_may_happen_on_postgresql(postgres: PostgresServer) -> None:
    def database() -> AbstractContextManager[str]:
        return postgres.database(template=TEMPLATE)

    run_state_machine_as_test(with_database(database), settings=settings_for(examples(6)))


def with_database(given: Callable[[], AbstractContextManager[str]]) -> type[Cluster]:
    class There(Cluster):
        database = staticmethod(given)

    return There
