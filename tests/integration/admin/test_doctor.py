"""`Registry.check` finds damage that was planted behind the triggers' back."""

from __future__ import annotations

import pytest

from registry import Registry
from registry.networks import NetworkSource, Subnet
from tests.raw_sql import RawSql
from tests.register import ACTOR, a_cluster, add_request, place, remove_vm, run_vm, take_lease

pytestmark = pytest.mark.sampled(3)

PLANTED = {
    "committed drifted": (
        "UPDATE inventories SET committed = committed + 1 WHERE resource = 'vcpus'",
        "committed vcpus is 3, its assignments and volumes hold 2",
    ),
    "an inventory lost": (
        "DELETE FROM inventories WHERE resource = 'disk_gib'",
        "has no inventory of disk_gib",
    ),
    "amounts lost": ("DELETE FROM assignment_resources", "is not released and holds nothing"),
    "placed twice": (
        "INSERT INTO assignments"
        " (id, vm_id, host_id, tenant_id, round, generation, state, created_at)"
        " SELECT {fresh_key}, vm_id, host_id, tenant_id, round, generation + 1,"
        " 'active', created_at FROM assignments",
        "has 2 places",
    ),
    "a generation lost": ("UPDATE vms SET generation = 0", "is of generation 0, its latest is 1"),
    "deleted, it says": (
        "UPDATE vms SET deleted_at = created_at",
        "not gone, but deleted_at disagrees",
    ),
    "running nowhere": (
        "UPDATE assignments SET state = 'released'",
        "but no assignment holds a place for it",
    ),
    "a request forgotten": (
        "UPDATE requests SET state = 'pending'",
        "is pending, its VMs say all_placed",
    ),
    "a request given up": (
        "UPDATE requests SET state = 'cancelled'",
        "is cancelled, its VMs say all_placed",
    ),
    "VMs lost": ("DELETE FROM vms", "has no VMs"),
    "a host retired": (
        "UPDATE hosts SET admin = 'retired'",
        "is not released and on the retired host h1",
    ),
    "an impossible history": (
        "UPDATE events SET to_state = 'quarantined' WHERE event = 'started'",
        "go from creating by started to quarantined, the table says active",
    ),
    "a reference lost": ("DELETE FROM tenants", "a row of tenants that does not exist"),
}


@pytest.fixture
def lived(register: Registry) -> Registry:
    """A register center in which a few things happened."""
    (host,) = a_cluster(register)
    lease = take_lease(register)
    gone = add_request(register, 2, name="gone")
    for key in place(register, gone, host, 2, lease).assignment_ids:
        run_vm(register, key)
    register.requests.delete(gone.id, actor=ACTOR)
    for vm in register.vms.list(request_id=gone.id).items:
        assert vm.assignment_id is not None
        remove_vm(register, vm.assignment_id)
    register.requests.delete(add_request(register).id, actor=ACTOR)
    for key in place(register, add_request(register, 2), host, 2, lease).assignment_ids:
        run_vm(register, key)
    return register


def test_a_register_center_in_which_things_happened_is_well(lived: Registry) -> None:
    assert lived.check() == []


@pytest.mark.parametrize("damage", PLANTED)
def test_damage_is_found_and_named(lived: Registry, raw: RawSql, damage: str) -> None:
    sql, finding = PLANTED[damage]
    raw.unguarded()
    raw.run(sql.format(fresh_key=raw.fresh_key))

    found = lived.check()

    assert any(finding in line for line in found), found


@pytest.mark.parametrize(
    ("kind", "subject", "right", "wrong"),
    [
        ("image_state", "image", "importing imported ready", "importing imported failed"),
        ("image_copy_state", "image", "absent claimed uploading", "absent uploaded present"),
        ("console_state", "vm", "waiting attached attached", "ended attached attached"),
        ("host_fence", "host", "pending claimed running", "idle claimed running"),
        ("slot_loop", "slot_loop", "running pause paused", "paused pause paused"),
    ],
)
def test_a_step_that_no_table_has_is_found(
    register: Registry, raw: RawSql, kind: str, subject: str, right: str, wrong: str
) -> None:
    def tell(step: str) -> None:
        before, event, after = step.split()
        raw.run(
            "INSERT INTO events (at, actor, kind, subject_type, subject_id, from_state, event,"
            f" to_state, data) VALUES (CURRENT_TIMESTAMP, 'a', '{kind}', '{subject}', 'x',"
            f" '{before}', '{event}', '{after}', '{{}}')"
        )

    tell(right)
    assert register.check() == []
    tell(wrong)
    [found] = register.check()
    before, event, after = wrong.split()
    assert found.startswith(f"1 events {kind} go from {before} by {event} to {after}, the table")


@pytest.mark.parametrize("damage", PLANTED)
def test_damage_of_what_lives_is_found_without_a_look_at_history(
    lived: Registry, raw: RawSql, damage: str
) -> None:
    sql, finding = PLANTED[damage]
    if damage == "a request given up":
        finding = "is cancelled, and 2 VMs are wanted"
    if damage == "a reference lost" and raw.dialect == "postgresql":
        sql = "ALTER TABLE vms DISABLE TRIGGER ALL"
        finding = "the foreign key fk_vms_tenant_id_tenants is missing, not validated or switched"
    raw.unguarded()
    raw.run(sql.format(fresh_key=raw.fresh_key))

    found = lived.check(history=False)

    assert any(finding in line for line in found), found


def test_damage_of_what_is_gone_is_found_with_history_alone(lived: Registry, raw: RawSql) -> None:
    raw.run("UPDATE vms SET observed = 'running' WHERE deleted_at IS NOT NULL")

    assert lived.check(history=False) == []
    assert any("but no assignment holds a place for it" in line for line in lived.check())


def test_a_trigger_that_is_missing_is_found(register: Registry, raw: RawSql) -> None:
    raw.drop_trigger("ledger_commit", "assignment_resources")

    assert register.check() == ["the trigger ledger_commit is missing: the ledger is not guarded"]


def test_addresses_of_vms_that_need_none_are_found_and_freed(
    register: Registry, raw: RawSql
) -> None:
    [host] = a_cluster(register)
    subnet = Subnet(cidr="10.0.0.0/29")
    lan = NetworkSource(kind="bridge", name="br0")
    register.networks.add("lan", actor=ACTOR, subnet=subnet, default=lan)
    lease = take_lease(register)
    request = add_request(register, 2, network="lan", name="web")
    for key in place(register, request, host, 2, lease).assignment_ids:
        run_vm(register, key)
    gone, stays = register.vms.list(request_id=request.id).items
    register.vms.delete(gone.id, actor=ACTOR)
    remove_vm(register, gone.assignment_id)
    assert register.check() == []
    raw.run(
        "UPDATE network_addresses SET vm_id = ? WHERE address ="
        " (SELECT min(address) FROM network_addresses WHERE vm_id IS NULL)",
        raw.key(gone.id),
    )

    [stray] = register.check()
    freed = register.networks.free_stray_addresses(actor=ACTOR)

    assert f"that of VM {gone.name}, which is gone; `fuga doctor --repair` frees it" in stray
    assert [f"{each}; `fuga doctor --repair` frees it" for each in freed] == [stray]
    assert register.check() == []
    [event] = register.events.list(kind="stray_address_freed")
    assert (event.subject_id, event.reason) == (str(gone.id), freed[0])
    raw.run("UPDATE network_addresses SET vm_id = NULL")
    assert register.check() == [
        f"VM {stays.name} ({stays.id}) has a place and no address of network lan"
    ]
    assert register.networks.free_stray_addresses(actor=ACTOR) == ()


def test_connections_that_processes_keep_are_counted_beside_what_the_server_gives(
    register: Registry, raw: RawSql
) -> None:
    for number in range(3):
        register.processes.register("worker", f"w{number}", "m1", number, stamp_of=lambda _: "s")
    register.processes.register("worker", "silent", "m2", 9, stamp_of=lambda _: "s")
    silent = "UPDATE processes SET heartbeat_at = {} WHERE name = 'silent'"
    raw.run(silent.format(raw.before("now", "1 hour")))

    found = register.connections()

    if raw.dialect == "sqlite":
        assert found is None
        return
    assert found is not None
    assert (found.processes, found.kept) == (3, 64)
    reserved = raw.value("SHOW superuser_reserved_connections")
    assert found.given == int(raw.value("SHOW max_connections")) - int(reserved)
