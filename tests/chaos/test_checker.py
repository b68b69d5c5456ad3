"""The checker finds what is broken by hand, and nothing in what is whole."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from registry import Registry, VmObserved
from registry.moves import Move, MoveLimits, PlanKind
from tests.chaos.__main__ import main
from tests.chaos.checker import check, unmeasured_faults
from tests.chaos.findings import HostSeen
from tests.raw_sql import RawSql, raw_sql
from tests.register import a_cluster, add_request, place, run_vm
from tests.servers.postgres import TEMPLATE, PostgresServer

pytestmark = pytest.mark.postgresql


def test_a_run_of_faults_that_there_are_not_names_those_that_there_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        main(["--only", "HostDobled"])

    assert "HostDoubled" in capsys.readouterr().err


@dataclass
class World:
    """A register with a request of two VMs, and the hosts and record that go with it."""

    raw: RawSql
    registry: Registry
    hosts: list[HostSeen]
    record: list[dict[str, Any]]
    vms: list[str]
    assignments: list[str] = field(default_factory=list)

    def rules(self) -> set[str]:
        """The rules that the checker finds broken."""
        return {finding.rule for finding in check(self.raw.rows, self.hosts, self.record)}

    def see(self, number: int, **changes: Any) -> None:
        self.hosts[number] = replace(self.hosts[number], **changes)


@contextmanager
def _made(url: str) -> Iterator[World]:
    registry = Registry.connect(url)
    hosts = a_cluster(registry, 2)
    request = add_request(registry, count=2, name="a-1")
    placed = place(registry, request, hosts[0], 2)
    for key in placed.assignment_ids:
        run_vm(registry, key)
    keys = [str(key) for key in placed.assignment_ids]
    volumes = frozenset(f"fuga-{key}{end}" for key in keys for end in (".qcow2", "-seed.img"))
    with raw_sql(url) as raw:
        vms = [str(row["id"]) for row in raw.rows("SELECT id FROM vms ORDER BY id")]
        yield World(
            raw=raw,
            registry=registry,
            hosts=[
                HostSeen("h1", {f"fuga-{vm}": "running" for vm in vms}, volumes),
                HostSeen("h2", {}, frozenset()),
            ],
            record=[
                {"what": "asking", "tenant": "a", "name": "a-1", "count": 2},
                {"what": "accepted", "tenant": "a", "name": "a-1", "id": str(request.id)},
            ],
            vms=vms,
            assignments=keys,
        )
    registry.close()


@pytest.fixture
def own_world(postgres: PostgresServer) -> Iterator[World]:
    """One in which the register center itself may be used."""
    with postgres.database(template=TEMPLATE) as url, _made(url) as made:
        yield made


@pytest.fixture(scope="module")
def _shared_world(postgres: PostgresServer) -> Iterator[World]:
    with postgres.database(template=TEMPLATE) as url, _made(url) as made:
        yield made


@pytest.fixture
def world(_shared_world: World) -> Iterator[World]:
    """One that is changed by raw SQL alone, and is whole again afterwards."""
    whole = _shared_world
    whole.raw.run("BEGIN")
    yield replace(whole, hosts=list(whole.hosts), record=list(whole.record))
    whole.raw.run("ROLLBACK")


def test_nothing_is_found_in_what_is_whole(world: World) -> None:
    assert world.rules() == set()


def test_a_vm_that_was_deleted_leaves_nothing_to_find(own_world: World) -> None:
    own_world.registry.requests.delete(own_world.registry.requests.list().items[0].id, actor="a")
    for key in own_world.assignments:
        removal = own_world.registry.assignments.claim_removal(_uuid(key), "w1", 60)
        assert removal is not None
        own_world.registry.assignments.release(removal.claim)
    own_world.record.append(own_world.record[1] | {"what": "deleted"})
    own_world.see(0, domains={}, volumes=frozenset())

    assert own_world.rules() == set()


# ---- hosts ---------------------------------------------------------------------------


def test_a_vm_on_two_hosts(world: World) -> None:
    world.see(1, domains={f"fuga-{world.vms[0]}": "running"})

    assert world.rules() == {"VM twice", "wrong host"}


def test_a_vm_on_another_host_than_the_ledger_says(world: World) -> None:
    moved = f"fuga-{world.vms[0]}"
    world.see(0, domains={name: s for name, s in world.hosts[0].domains.items() if name != moved})
    world.see(1, domains={moved: "running"})

    assert world.rules() == {"wrong host"}


def test_a_vm_that_is_not_there(world: World) -> None:
    world.see(0, domains={f"fuga-{world.vms[0]}": "running"})

    assert world.rules() == {"missing VM"}


@pytest.mark.parametrize("state", ["shut off", "paused", "crashed"])
def test_a_vm_that_should_run_and_does_not(world: World, state: str) -> None:
    world.see(0, domains={f"fuga-{vm}": state for vm in world.vms})

    assert world.rules() == {"wrong state"}


def test_a_vm_that_should_be_off_and_runs(world: World) -> None:
    world.raw.run("UPDATE vms SET desired = 'stopped'")

    assert {"wrong state"} <= world.rules()


def test_a_vm_that_runs_unseen(world: World) -> None:
    world.raw.run("UPDATE vms SET observed = 'stopped'")

    assert world.rules() == {"unseen", "untold change"}


def test_a_leftover_domain(world: World) -> None:
    world.see(1, domains={"fuga-11111111-1111-4111-8111-111111111111": "shut off"})

    assert world.rules() == {"leftover domain"}


def test_a_leftover_volume(world: World) -> None:
    world.see(1, volumes=frozenset({f"fuga-{world.assignments[0]}.qcow2"}))

    assert world.rules() == {"leftover volume"}


def test_a_volume_that_is_not_there(world: World) -> None:
    world.see(0, volumes=frozenset(sorted(world.hosts[0].volumes)[1:]))

    assert world.rules() == {"missing volume"}


def test_leftovers_and_strangers_that_the_register_still_knows(world: World) -> None:
    host = world.raw.rows("SELECT id FROM hosts ORDER BY name")[0]["id"]
    found = {"id": world.raw.new_key(), "host_id": host, "kind": "volume", "name": "fuga-x.qcow2"}
    world.raw.run(
        "INSERT INTO leftovers (id, host_id, kind, name, found_at) VALUES (?, ?, ?, ?, now())",
        *found.values(),
    )
    world.raw.run(
        "INSERT INTO strangers (host_id, domain_uuid, name, first_seen_at)"
        " VALUES (?, ?, 'other', now())",
        host,
        world.raw.new_key(),
    )

    assert world.rules() == {"leftover", "stranger"}


# ---- requests ------------------------------------------------------------------------


def test_an_accepted_request_that_is_lost(world: World) -> None:
    world.record += [
        {"what": "asking", "tenant": "a", "name": "a-2", "count": 1},
        {
            "what": "accepted",
            "tenant": "a",
            "name": "a-2",
            "id": "11111111-1111-4111-8111-111111111111",
        },
    ]

    assert world.rules() == {"lost request"}


def test_a_request_that_nobody_answered(world: World) -> None:
    world.record.append({"what": "asking", "tenant": "a", "name": "a-2", "count": 1})

    assert world.rules() == {"lost request"}


@pytest.mark.parametrize("changed", [{"count": 3}, {"tenant": "b"}])
def test_a_request_that_became_another(world: World, changed: dict[str, Any]) -> None:
    world.record[:] = [each | changed for each in world.record]

    assert world.rules() == {"lost request"}


def test_a_request_that_nobody_accepted(world: World) -> None:
    del world.record[1]
    world.record.append({"what": "refused", "tenant": "a", "name": "a-1", "said": "no"})

    assert world.rules() == {"unknown request", "refused"}


def test_a_request_of_which_a_retry_made_a_second_one(own_world: World) -> None:
    again = add_request(own_world.registry, count=2, name="a-2")
    own_world.raw.run("DROP INDEX uq_requests_tenant_id_name")
    own_world.raw.run("UPDATE requests SET name = 'a-1' WHERE id = ?", again.id)

    assert {"request made twice", "unknown request"} <= own_world.rules()


def test_a_request_that_waits_and_does_not_say_why(own_world: World) -> None:
    later = add_request(own_world.registry, name="a-2")
    own_world.record += [
        {"what": "asking", "tenant": "a", "name": "a-2", "count": 1},
        {"what": "accepted", "tenant": "a", "name": "a-2", "id": str(later.id)},
    ]

    assert own_world.rules() == {"no reason"}


def test_a_deletion_that_was_accepted_and_forgotten(world: World) -> None:
    world.record.append(world.record[1] | {"what": "deleted"})

    assert world.rules() == {"not deleted"}


# ---- history -------------------------------------------------------------------------


def test_a_host_that_held_more_than_it_has_for_a_moment(world: World) -> None:
    world.raw.unguarded()
    # As if it had been smaller all the time: what is committed now is not looked at.
    world.raw.run("UPDATE inventories SET override = 1 WHERE resource = 'vcpus'")

    assert world.rules() == {"over-committed"}


def test_a_host_that_held_more_than_it_has_though_all_is_released_now(own_world: World) -> None:
    test_a_vm_that_was_deleted_leaves_nothing_to_find(own_world)
    own_world.raw.run("UPDATE inventories SET override = 1 WHERE resource = 'vcpus'")

    assert own_world.rules() == {"over-committed"}


def test_a_vm_that_had_two_places_for_a_moment(world: World) -> None:
    world.raw.unguarded()
    second = world.raw.new_key()
    world.raw.run(
        "INSERT INTO assignments (id, vm_id, host_id, tenant_id, round, generation, state,"
        " created_at, released_at) SELECT ?, vm_id, (SELECT id FROM hosts WHERE name = 'h2'),"
        " tenant_id, round, 9, 'released', now(), now() FROM assignments LIMIT 1",
        second,
    )
    for before, event, after in ((None, None, "reserved"), ("reserved", "withdrawn", "released")):
        _tell(world, second, before, event, after)

    assert world.rules() == {"VM placed twice"}


def _tell(world: World, key: object, before: str | None, event: str | None, after: str) -> None:
    world.raw.run(
        "INSERT INTO events (at, actor, kind, subject_type, subject_id, from_state, event,"
        " to_state, data) VALUES (now(), 'w1', 'assignment_state', 'assignment', ?, ?, ?, ?, '{}')",
        str(key),
        before,
        event,
        after,
    )


def test_a_change_that_no_table_has(world: World) -> None:
    _tell(world, world.assignments[0], "active", "withdrawn", "releasing")
    world.raw.run("UPDATE assignments SET state = 'releasing' WHERE id = ?", world.assignments[0])

    assert "illegal change" in world.rules()
    assert "untold change" not in world.rules()


def test_a_change_of_a_kind_that_nobody_knows(world: World) -> None:
    world.raw.run("UPDATE events SET kind = 'assignment_moved' WHERE to_state = 'active'")

    assert "unknown change" in world.rules()


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE assignments SET state = 'quarantined'",
        "UPDATE requests SET state = 'cancelled'",
        "UPDATE hosts SET health = 'down'",
        "DELETE FROM events WHERE to_state = 'creating'",
    ],
)
def test_a_change_that_no_event_tells(world: World, change: str) -> None:
    world.raw.run(change)

    assert "untold change" in world.rules()


def test_a_ledger_that_does_not_add_up(world: World) -> None:
    world.raw.unguarded()
    world.raw.run("UPDATE inventories SET committed = committed + 1 WHERE resource = 'vcpus'")

    assert world.rules() == {"ledger"}


# ---- moves ---------------------------------------------------------------------------


def _ask_to_move(world: World, host: str = "h2") -> Move:
    world.raw.run("UPDATE hosts SET domain_type = 'qemu'")  # libvirt's test driver moves nothing
    return world.registry.moves.create(_uuid(world.vms[0]), host, reason="test", actor="chaos")


def _move(world: World, number: int) -> Move:
    """Have the first VM moved to h1 or h2, and what it left behind removed."""
    registry, vm = world.registry, world.vms[0]
    before = registry.vms.get(_uuid(vm)).assignment_id
    move = _ask_to_move(world, f"h{number}")
    step = registry.move_steps.claim(move.id, "w1", 60, MoveLimits(per_host=1, everywhere=1))
    assert step is not None
    assert registry.move_steps.record_arrival(step.claim, VmObserved.RUNNING, downtime_ms=1)
    assert before is not None
    removal = registry.assignments.claim_removal(before, "w1", 60)
    assert removal is not None
    registry.assignments.release(removal.claim)
    world.record.append({"what": "moving", "id": str(move.id), "vm": vm})
    own = {f"fuga-{step.to.claim.assignment_id}{end}" for end in (".qcow2", "-seed.img")}
    gone = {f"fuga-{before}{end}" for end in (".qcow2", "-seed.img")}
    for at, host in enumerate(world.hosts):
        others = {name: state for name, state in host.domains.items() if name != f"fuga-{vm}"}
        here = at == number - 1
        world.see(
            at,
            domains=others | ({f"fuga-{vm}": "running"} if here else {}),
            volumes=(host.volumes - gone) | (own if here else frozenset()),
        )
    return registry.moves.get(move.id)


def test_vms_that_moved_leave_nothing_to_find(own_world: World) -> None:
    for number in (2, 1, 2):
        _move(own_world, number)

    assert own_world.rules() == set()


def test_a_host_that_held_more_than_it_has_while_a_vm_arrived_there(own_world: World) -> None:
    for number in (2, 1):
        _move(own_world, number)
    own_world.raw.run(
        "UPDATE inventories SET override = 1 WHERE resource = 'memory_mib'"
        " AND host_id = (SELECT id FROM hosts WHERE name = 'h2')"
    )

    assert own_world.rules() == {"over-committed"}


def test_a_move_that_nobody_ended(own_world: World) -> None:
    _ask_to_move(own_world)

    assert own_world.rules() == {"unfinished", "unfinished move"}


def test_what_a_vm_left_behind_and_nobody_removed(own_world: World) -> None:
    move = _ask_to_move(own_world)
    limits = MoveLimits(per_host=1, everywhere=1)
    step = own_world.registry.move_steps.claim(move.id, "w1", 60, limits)
    assert step is not None
    own_world.registry.move_steps.record_failure(step.claim, "it was not to be")

    assert own_world.rules() == {"unfinished"}


def test_a_plan_that_nobody_decided(own_world: World) -> None:
    own_world.registry.plans.create(PlanKind.BALANCE, {}, approve=False, actor="chaos")

    assert own_world.rules() == {"unfinished plan"}


def test_a_plan_that_is_done_without_one_of_its_moves(own_world: World) -> None:
    plan = own_world.registry.plans.create(PlanKind.BALANCE, {}, approve=False, actor="chaos")
    own_world.raw.run("UPDATE plans SET state = 'done' WHERE id = ?", plan.id)
    own_world.raw.run(
        "INSERT INTO plan_moves (plan_id, position, wave, vm_id, from_host_id, to_host_id, why,"
        " transfer_mib) SELECT ?, 0, 0, v.id, h.id, h.id, 'gain', 1 FROM vms v, hosts h LIMIT 1",
        plan.id,
    )

    assert "unfinished plan" in own_world.rules()


@pytest.mark.parametrize("lost", [{"id": "11111111-1111-4111-8111-111111111111"}, {"vm": "x"}, {}])
def test_a_move_that_was_accepted_and_is_not_what_was_asked(
    own_world: World, lost: dict[str, str]
) -> None:
    _move(own_world, 2)
    own_world.record.append(own_world.record[-1] | lost)  # or the answer to two calls

    assert own_world.rules() == {"lost move"}


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE moves SET state = 'failed'",
        "DELETE FROM events WHERE event = 'arrived' AND kind = 'assignment_state'",
    ],
)
def test_a_move_that_says_something_else_than_where_its_vm_is(
    own_world: World, change: str
) -> None:
    _move(own_world, 2)
    own_world.raw.run(change)

    assert "torn move" in own_world.rules()


def test_a_vm_that_arrived_at_two_hosts_for_a_moment(own_world: World) -> None:
    move = _ask_to_move(own_world)
    own_world.raw.unguarded()
    second = own_world.raw.new_key()
    own_world.raw.run(
        "INSERT INTO assignments (id, vm_id, host_id, tenant_id, round, generation, state,"
        " created_at, released_at) SELECT ?, vm_id, host_id, tenant_id, round, 9, 'released',"
        " now(), now() FROM assignments WHERE state = 'arriving'",
        second,
    )
    for before, event, after in ((None, None, "arriving"), ("arriving", "withdrawn", "released")):
        _tell(own_world, second, before, event, after)
    own_world.registry.moves.cancel(move.id, actor="chaos")

    assert own_world.rules() == {"VM placed twice"}


@pytest.mark.parametrize(
    ("counts", "rules"),
    [
        ([0, 1, 2], set()),
        ([0, -1, 2], {"gap on a disk"}),
        ([-1, 1, 2], {"gap on a disk"}),
        ([0, 1, 1], {"gap on a disk"}),
        ([0, 1], {"lost writes"}),
    ],
)
def test_what_a_guest_counted_on_its_disk(world: World, counts: list[int], rules: set[str]) -> None:
    world.see(0, disks={f"fuga-{_first_assignment(world)}.qcow2": counts})
    world.record.append(_counted(world, 2, at=time.time()))

    assert world.rules() == rules


def test_what_was_counted_on_a_disk_before_the_present_one_does_not_count(world: World) -> None:
    world.see(0, disks={f"fuga-{_first_assignment(world)}.qcow2": [0]})
    world.record.append(_counted(world, 2, at=1.0))

    assert world.rules() == set()


def _counted(world: World, number: int, *, at: float) -> dict[str, Any]:
    numbers = list(range(number + 1))
    return {"what": "counted", "vm": world.vms[0], "numbers": numbers, "counted_at": at}


def _first_assignment(world: World) -> str:
    query = "SELECT id FROM assignments WHERE vm_id = ?"
    return str(world.raw.rows(query, _uuid(world.vms[0]))[0]["id"])


# ---- the run's own record ------------------------------------------------------------


def test_what_the_watch_and_the_tenants_saw(world: World) -> None:
    world.record += [
        {"what": "twice", "vm": world.vms[0], "hosts": ["h1", "h2"]},
        {"what": "failed", "call": "POST /v1/requests", "said": "internal"},
    ]

    assert world.rules() == {"VM ran twice", "API failed"}


@pytest.mark.parametrize(
    "told",
    [
        {"kind": "leader killed", "epoch": 1},
        {"kind": "network to a host cut", "host": "h1", "until": "down"},
        {"kind": "host powered off and on", "host": "h1", "fenced": True},
        {"kind": "pool full", "host": "h1", "failed_builds": 1},
        {"kind": "worker killed", "process": "worker-1", "pid": 4, "held": ["nobody took it"]},
        {"kind": "source powered off inside a move", "move": "nobody ended it"},
    ],
    ids=lambda told: told["kind"],
)
def test_a_fault_of_which_nothing_tells(world: World, told: dict[str, Any]) -> None:
    world.record += _struck(told, at=time.time())

    assert "invisible fault" in world.rules()


def _struck(
    told: dict[str, Any], scrapes: Sequence[dict[str, Any]] = (), at: float = 0.0
) -> list[dict[str, Any]]:
    return [
        {"what": "strike", "fault": 1, "at": at},
        *scrapes,
        {"what": "over", "fault": 1, **told},
        {"what": "healed"},
    ]


def _scrape(process: str, **told: Any) -> dict[str, Any]:
    told = {"answers": True, "started": 1.0, "samples": {}, "ready": True} | told
    return {"what": "scrape", "process": process, **told}


def _leads(epoch: int, **told: Any) -> dict[str, Any]:
    return _scrape("control-2", samples={"fuga_lease_epoch": float(epoch)}, **told)


_LEADER = {"kind": "leader killed", "process": "control-1"}
_NEXT = {"kind": "leader killed", "epoch": 0}
_BROKER = {"kind": "redis killed"}
_HOST = {"kind": "libvirtd killed", "host": "h1", "until": "unreachable"}
_FENCED = {"kind": "libvirtd killed", "fenced": True}
_FULL = {"kind": "pool full", "failed_builds": 1}
_REPEATED = {"kind": "tasks repeated"}
_MOVE = {"kind": "source powered off inside a move", "move": "m"}
_MOVES_ENDED = 'fuga_moves_ended{outcome="failed"}'
_MISSED = 'fuga_polls_total{outcome="missed"}'
_DOWN = 'fuga_hosts{admin="active",health="down"}'
_OFF = 'fuga_fences{state="fenced"}'
_FAILED = 'fuga_tasks_total{outcome="failed",task="create_vm"}'
_NOT_OURS = 'fuga_tasks_total{outcome="not_ours",task="create_vm"}'


def _counts(*counts: dict[str, float]) -> list[dict[str, Any]]:
    return [_scrape("api-1", samples=each) for each in counts]


@pytest.mark.parametrize(
    ("told", "scrapes"),
    [
        (_LEADER, [_scrape("control-1")]),
        (_LEADER, [_scrape("control-1"), _scrape("control-2", answers=False)]),
        (_NEXT, [_leads(1), _leads(1)]),
        (_BROKER, [_scrape("worker-1"), _scrape("worker-1")]),
        (_HOST, _counts({_MISSED: 1}, {_MISSED: 1, _DOWN: 1})),
        (_HOST, _counts({_MISSED: 1}, {_MISSED: 2, _DOWN: 0})),
        (_FENCED, _counts({_OFF: 0}, {_MISSED: 1})),
        (_FULL, _counts({_FAILED: 4}, {_FAILED: 4})),
        (_REPEATED, _counts({_NOT_OURS: 4, _FAILED: 1}, {_NOT_OURS: 4, _FAILED: 2})),
        (_MOVE, _counts({_MOVES_ENDED: 4}, {_MOVES_ENDED: 4})),
    ],
)
def test_a_fault_of_which_no_metrics_tell(
    told: dict[str, Any], scrapes: list[dict[str, Any]]
) -> None:
    found = list(unmeasured_faults(_struck(told, scrapes)))

    assert [finding.rule for finding in found] == ["unmeasured fault"]


@pytest.mark.parametrize(
    ("told", "scrapes"),
    [
        (_LEADER, [_scrape("control-1", answers=False)]),
        (_LEADER, [_scrape("control-1"), _scrape("control-1", started=2.0)]),
        (_NEXT, [_leads(1), _leads(2)]),
        (_BROKER, [_scrape("worker-1"), _scrape("worker-1", ready=False)]),
        (_HOST, _counts({_MISSED: 1}, {_MISSED: 2, _DOWN: 1})),
        (_FENCED, _counts({_OFF: 1})),
        (_FULL, _counts({_FAILED: 4}, {_FAILED: 5})),
        (_FULL, [*_counts({_FAILED: 4}), _scrape("api-1", started=2.0, samples={_FAILED: 1})]),
        (_REPEATED, _counts({_NOT_OURS: 4}, {_NOT_OURS: 5})),
        (_MOVE, _counts({_MOVES_ENDED: 4}, {_MOVES_ENDED: 5})),
        ({"kind": "redis emptied"}, []),
    ],
)
def test_a_fault_of_which_metrics_tell(told: dict[str, Any], scrapes: list[dict[str, Any]]) -> None:
    found = list(unmeasured_faults(_struck(told, scrapes)))

    assert found == []


def test_what_metrics_tell_before_a_fault_or_after_it_healed_does_not_count() -> None:
    record = [
        *_counts({_MISSED: 1}, {_MISSED: 2, _DOWN: 1}),
        *_struck(_HOST),
        *_counts({_MISSED: 3, _DOWN: 1}),
    ]

    assert [finding.rule for finding in unmeasured_faults(record)] == ["unmeasured fault"]


# ---- fencing -------------------------------------------------------------------------


def _fence(world: World, *, switched_off: bool) -> None:
    """Have h1 fenced, and what it held released, by a command that may lie."""
    registry = world.registry
    host = registry.hosts.get("h1")
    registry.hosts.update("h1", labels=["on_failure=rebuild"], fence_target="1", actor="cli")
    registry.hosts.record_miss(host.id, "silent", unreachable_after=1, down_after=1)
    registry.fencing.request("h1", actor="cli")
    order = registry.fencing.claim(host.id, "w1", 60)
    assert order is not None
    if switched_off:
        world.record.append({"what": "switched off", "host": "h1", "at": time.time()})
    registry.fencing.record_success(order)
    world.see(0, domains={}, volumes=frozenset())


def test_a_host_that_was_switched_off_before_its_vms_were_taken_from_it(own_world: World) -> None:
    _fence(own_world, switched_off=True)
    later = {"what": "switched off", "host": "h1", "at": time.time()}  # nobody looks at that
    own_world.record.append(later)

    assert own_world.rules() == {"no reason"}  # no round has decided them again


def test_a_host_that_was_taken_for_off_and_was_on(own_world: World) -> None:
    _fence(own_world, switched_off=False)

    assert own_world.rules() == {"no reason", "not fenced"}


def test_vms_taken_from_a_host_that_nobody_fenced(own_world: World) -> None:
    _fence(own_world, switched_off=True)
    own_world.raw.run("DELETE FROM events WHERE kind = 'host_fence' AND event = 'succeeded'")

    assert "not fenced" in own_world.rules()


def test_a_fault_of_which_events_tell(own_world: World) -> None:
    host = own_world.registry.hosts.get("h1")
    for after in (2, 3):
        own_world.registry.hosts.record_miss(
            host.id, "silent", unreachable_after=1, down_after=after
        )
    own_world.raw.run(
        "INSERT INTO events (at, actor, kind, subject_type, subject_id, from_state, event,"
        " to_state, data) SELECT now(), 'monitor', 'host_health', 'host', id, 'unreachable',"
        " 'answered', 'up', '{\"name\": \"h1\"}' FROM hosts WHERE name = 'h1'"
    )
    own_world.raw.run("UPDATE hosts SET health = 'up'")
    seen = _counts({_MISSED: 1}, {_MISSED: 2, _DOWN: 1})
    own_world.record += _struck(_HOST, seen)

    assert own_world.rules() == set()


def _uuid(text: str) -> Any:
    from uuid import UUID

    return UUID(text)


# ---- reservations --------------------------------------------------------------------


def _reserve(world: World, count: int, kept: int, state: str = "in_force") -> None:
    tenant, vm_type, host = (
        world.raw.value(f"SELECT id FROM {table} ORDER BY name LIMIT 1")
        for table in ("tenants", "vm_types", "hosts")
    )
    key = "00000000-0000-7000-8000-000000000001"
    world.raw.run(
        "INSERT INTO reservations (id, name, tenant_id, vm_type_id, count, requires, keep_from,"
        " starts_at, ends_at, state, requested_by, created_at) VALUES (?, 'launch', ?, ?, ?, '[]',"
        " now(), now(), now() + interval '1 hour', ?, 'a', now())",
        *(key, tenant, vm_type, count, state),
    )
    world.raw.run("INSERT INTO reservation_holds VALUES (?, ?, ?)", key, host, kept)
    steps = {"in_force": ("accepted", "began"), "ended": ("accepted", "ended")}[state]
    now = "pending"
    for event, after in zip(steps, ("accepted", state), strict=True):
        world.raw.run(
            "INSERT INTO events (at, actor, kind, subject_type, subject_id, from_state, event,"
            " to_state, data) VALUES (now(), 'control', 'reservation_state', 'reservation', ?, ?,"
            " ?, ?, '{}')",
            *(key, now, event, after),
        )
        now = after


def test_reserved_room_that_is_there(world: World) -> None:
    _reserve(world, count=1, kept=1)

    assert world.rules() == set()


@pytest.mark.parametrize(
    ("count", "kept", "state"), [(1000, 1000, "in_force"), (1, 2, "in_force"), (1, 1, "ended")]
)
def test_reserved_room_that_is_not_there_or_nobodys(
    world: World, count: int, kept: int, state: str
) -> None:
    _reserve(world, count, kept, state)

    assert world.rules() == {"promised twice"}
