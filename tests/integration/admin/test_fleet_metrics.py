"""What metrics tell of the register center, on both databases."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from decimal import Decimal
from uuid import UUID

from controller.fleet_metrics import FleetCollector
from registry import AssignmentState, Registry
from registry.requests import WaitingStatus
from tests.e2e.moving import a_host_of_guests, a_running_vm, arrive, begin
from tests.raw_sql import RawSql
from tests.register import (
    a_cluster,
    a_commit,
    add_host,
    add_request,
    add_tenant,
    add_vm_type,
    place,
    run_vm,
    take_lease,
)

Samples = Mapping[tuple[str, ...], float]


def told(collector: FleetCollector) -> Samples:
    return {
        (each.name.removeprefix("fuga_"), *each.labels.values()): each.value
        for family in collector.collect()
        for each in family.samples
    }


def before(register: Registry) -> str:
    return (register.now() - timedelta(seconds=10)).strftime("%Y-%m-%d %H:%M:%S.%f")


def collector(register: Registry, most: int = 100) -> FleetCollector:
    return FleetCollector(register, interval_s=1e-9, max_series=most)


def test_an_empty_register_has_nothing_to_tell_and_does_not_fail(register: Registry) -> None:
    found = told(collector(register))

    assert found["register_reachable",] == 1
    assert found["assignments", "reserved"] == 0
    assert found["task_age_seconds", "quarantined"] == 0
    assert not [name for name in found if name[0] in ("dominant_share", "hosts", "last_round")]


def test_work_shares_ledger_and_leader_are_told(register: Registry, raw: RawSql) -> None:
    host, other = a_cluster(register, hosts=2)
    register.hosts.update(host.name, labels=["zone=east", "ssd"], actor="cli")
    host = register.hosts.get(host.name)
    placed = add_request(register, 2)
    waits = add_request(register, 3, tenant="b")
    add_request(register, 1, tenant="b")
    lease = take_lease(register, "cc-1")
    first, second = place(register, placed, host, 2, lease).assignment_ids
    run_vm(register, first)
    build = register.assignments.claim_build(second, "w1", 60)
    assert build is not None
    register.assignments.record_failure(build.claim, "no", transient=False)
    why = {waits.id: WaitingStatus(count=3, reason="no_room")}
    number = register.rounds.commit_round(a_commit(lease, waiting=why)).number

    found = told(collector(register))

    assert found["vms_waiting", "no_room"] == 3
    assert found["vms_waiting", "not_decided_yet"] == 1
    assert (found["requests", "pending"], found["requests", "placed"]) == (2, 1)
    assert found["assignments", AssignmentState.ACTIVE] == 1
    assert found["assignments", AssignmentState.QUARANTINED] == 1
    assert (found["tenant_vms", "a"], found["tenant_vms", "b"]) == (2, 0)
    assert found["dominant_share", "a", "tenant"] == 2 * 3072 / (2 * 32768)
    assert found["entitlement", "b", "tenant"] == 0.5
    assert found["capacity", "east", "vcpus"] == found["capacity", "", "vcpus"] == 16
    assert (found["committed", "east", "vcpus"], found["committed", "", "vcpus"]) == (2, 0)
    assert found["host_committed", host.name, "memory_mib"] == 2 * 3072
    assert found["host_capacity", other.name, "memory_mib"] == 32768
    assert found["hosts", "active", "up"] == 2
    assert (found["hosts_in_backoff",], found["images_held",]) == (1, 0)
    assert (found["lease_held", "cc-1"], found["lease_epoch",]) == (1, lease.epoch)
    assert (found["last_round",], found["last_round_not_placed",]) == (number, 3)


def test_prices_of_the_last_round_are_told_by_the_class_where_they_are_highest(
    register: Registry,
) -> None:
    a_cluster(register)
    lease = take_lease(register)
    classes = [{"price": {"vcpus": 1.0, "disk_gib": 0.0}}, {"price": {"vcpus": 0.5}}]
    prices = {"most": 8.0, "of_fairness": 2.0, "classes": classes, "error": None}
    register.rounds.commit_round(a_commit(lease, prices=prices))

    found = told(collector(register))

    assert found["last_round_price_of_fairness",] == 0.25
    assert (found["last_round_price", "vcpus"], found["last_round_price", "disk_gib"]) == (1, 0)

    register.rounds.commit_round(a_commit(lease, prices={**prices, "error": "too large"}))

    assert not [name for name in told(collector(register)) if "price" in name[0]]


def test_ages_are_those_of_the_states_and_not_of_the_rows(register: Registry, raw: RawSql) -> None:
    [host] = a_cluster(register)
    request = add_request(register, 2)
    running, _ = place(register, request, host, 2).assignment_ids
    run_vm(register, running)
    hour_ago, minute_ago = raw.before("now", "1 hours"), raw.before("now", "1 minutes")
    raw.run(f"UPDATE assignments SET created_at = {hour_ago}")
    vms = {vm.assignment_state: vm for vm in register.vms.list().items}
    register.vms.delete(vms[AssignmentState.ACTIVE].id, actor="cli")
    raw.run(f"UPDATE events SET at = {minute_ago} WHERE subject_id = ?", str(running))
    raw.run(f"UPDATE hosts SET last_polled_at = {minute_ago}")
    raw.run(f"UPDATE leases SET expires_at = {minute_ago}")

    found = told(collector(register))

    assert 3600 <= found["task_age_seconds", "reserved"] < 7200
    assert 60 <= found["task_age_seconds", "releasing"] < 3600
    assert 60 <= found["host_poll_age_seconds", "h1"] < 3600
    assert found["poll_age_max_seconds", ""] >= found["host_poll_age_seconds", "h1"] - 1
    assert found["lease_held", "cc-1"] == 0


def test_moves_are_told_with_their_age_outcome_and_standstill(
    register: Registry, raw: RawSql
) -> None:
    add_vm_type(register)
    add_tenant(register, "a")
    h1, h2 = (a_host_of_guests(register, name) for name in ("h1", "h2"))
    vms = [UUID(a_running_vm(register, h1, name=f"web{number}")) for number in range(4)]

    def moved(vm: UUID, downtime_ms: int) -> None:
        move = register.moves.create(vm, h2.name, reason="a new fan", actor="cli")
        arrive(register, begin(register, str(move.id)), downtime_ms)

    nothing = told(collector(register))
    assert (nothing["moves", "pending"], nothing["moves_ended", "moved"]) == (0, 0)
    assert (nothing["move_age_seconds",], nothing["move_standstill_seconds",]) == (0, 0)
    long_ago = register.moves.create(vms[0], h2.name, reason="a new fan", actor="cli")
    arrive(register, begin(register, str(long_ago.id)), 90_000)
    old = raw.key(UUID(int=1))
    raw.run("UPDATE moves SET id = ?", old)
    moved(vms[1], 150)
    moved(vms[2], 250)
    failed = register.moves.create(vms[3], h2.name, reason="a new fan", actor="cli")
    register.move_steps.record_failure(begin(register, str(failed.id)).claim, "no")
    waits = register.moves.create(vms[1], h1.name, reason="back", actor="cli")
    begin(register, str(waits.id))
    register.moves.create(vms[2], h1.name, reason="back", actor="cli")
    raw.run(
        f"UPDATE moves SET requested_at = {raw.before('now', '1 hours')} WHERE state = 'pending'"
    )

    found = told(collector(register))

    assert (found["moves", "pending"], found["moves", "moving"]) == (1, 1)
    assert 3600 <= found["move_age_seconds",] < 7200
    assert (found["moves_ended", "moved"], found["moves_ended", "failed"]) == (2, 1)
    assert found["moves_ended", "cancelled"] == 0
    assert found["move_standstill_seconds",] == 0.4
    assert found["move_standstill_max_seconds",] == 0.25
    assert (found["assignments", "arriving"], found["assignments", "leaving"]) == (2, 1)
    assert found["task_age_seconds", "leaving"] >= 0


def test_how_far_the_fencing_of_hosts_has_come_is_told(register: Registry) -> None:
    host, *_ = a_cluster(register)
    assert told(collector(register))["fences", "pending"] == 0
    register.hosts.update(host.name, fence_target="7", actor="cli")
    register.hosts.record_miss(host.id, "silent", unreachable_after=1, down_after=1)
    register.fencing.request(host.name, actor="cli")

    found = told(collector(register))

    assert (found["fences", "pending"], found["fences", "fenced"]) == (1, 0)


def test_a_large_pool_is_told_by_zone_and_its_largest_tenants(register: Registry) -> None:
    host, *_ = a_cluster(register, hosts=2)
    place(register, add_request(register, tenant="b"), host)

    found = told(collector(register, most=1))

    assert not [name for name in found if name[0].startswith("host_")]
    assert found["capacity", "", "vcpus"] == 32
    assert [name[1] for name in found if name[0] == "dominant_share"] == ["b"]
    assert [name[1] for name in found if name[0] == "tenant_vms"] == ["b"]


def test_budgets_are_told_by_state_and_those_of_which_most_is_used(
    register: Registry, raw: RawSql
) -> None:
    host, *_ = a_cluster(register)
    (key,) = place(register, add_request(register), host).assignment_ids
    run_vm(register, key)
    raw.run("UPDATE assignments SET activated_at = ?, created_at = ?", *[before(register)] * 2)
    for tenant, amount in (("a", "0.000001"), ("b", "5")):
        register.budgets.set(tenant, {"vms": Decimal(amount)}, actor="cli")

    found = told(collector(register, most=1))

    assert (found["budgets", "open"], found["budgets", "spent"]) == (1, 1)
    assert (found["budget_spent", "a", "vms"], found["budget_limit", "a", "vms"]) == (1, 0.000001)
    assert found["budget_used", "a", "vms"] > found["budget_limit", "a", "vms"]
    assert found["budget_used_per_hour", "a", "vms"] == 1
    assert 0 <= found["budget_age_seconds",] < 600
    assert not [name for name in found if name[1:2] == ("b",) and name[0].startswith("budget")]


def test_borrowed_vms_are_told_by_tenant(register: Registry, raw: RawSql) -> None:
    host, *_ = a_cluster(register)
    place(register, add_request(register, 2), host, 2)
    raw.run("UPDATE vms SET borrowed = true")

    found = told(collector(register))

    assert (found["borrowed_vms", "kept"], found["borrowed_vms", "ending"]) == (2, 0)
    assert (found["tenant_borrowed_vms", "a"], found["tenant_borrowed", "a", "vcpus"]) == (2, 2)


def test_the_database_is_read_once_in_an_interval_and_may_be_away(register: Registry) -> None:
    clock = [0.0]
    a_cluster(register)
    collecting = FleetCollector(register, interval_s=10, max_series=9, now=lambda: clock[0])

    assert told(collecting)["hosts", "active", "up"] == 1
    add_host(register, "late")
    clock[0] = 9.9
    assert told(collecting)["hosts", "active", "up"] == 1
    clock[0] = 10.0
    assert told(collecting)["hosts", "active", "up"] == 2
    clock[0] = 20.0
    register.fleet = _away  # type: ignore[method-assign]
    assert told(collecting) == {("register_reachable",): 0.0}


def _away() -> None:
    raise ConnectionError("the database is away")
