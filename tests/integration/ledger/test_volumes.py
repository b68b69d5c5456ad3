"""Volumes in the register center: what they hold, who has them, and the steps of workers."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from uuid import UUID, uuid4

import pytest

from controller.rounds.tenant_trees import build_allowances
from registry import (
    ClaimLostError,
    ConflictError,
    DuplicateError,
    HostAdminEvent,
    InvalidError,
    MoveRefusedError,
    NotFoundError,
    QuotaExceededError,
    Registry,
    VolumeEvent,
    VolumeState,
)
from registry.admin.retention import Periods
from registry.differences import Difference
from registry.hosts import DomainReport, Host
from registry.tasks import Build
from registry.volumes import MAX_ATTACHED, Volume, VolumeStep
from tests.raw_sql import REFUSED, RawSql
from tests.register import (
    ACTOR,
    a_cluster,
    a_domain,
    a_report,
    a_stranger,
    add_group,
    add_host,
    add_request,
    remove_vm,
    running,
    take_lease,
)

CHANGE = "workers.change_volume"


def a_volume(registry: Registry, name: str = "data", size_gib: int = 10, **fields: str) -> Volume:
    tenant = fields.get("tenant", "a")
    return registry.volumes.create(name, tenant=tenant, size_gib=size_gib, actor=ACTOR)


def committed(registry: Registry, host: Host) -> int:
    (disk,) = [
        each for each in registry.hosts.get(host.name).inventories if each.resource == "disk_gib"
    ]
    return disk.committed


def state(registry: Registry, volume: Volume) -> VolumeState:
    return registry.volumes.get(volume.id).state


def claim(registry: Registry, volume: Volume, owner: str = "w1") -> VolumeStep:
    step = registry.volume_steps.claim(volume.id, owner, 60)
    assert step is not None, f"nothing is due for a volume that is {state(registry, volume)}"
    return step


def advance(registry: Registry, volume: Volume, *events: VolumeEvent) -> VolumeState:
    """Do what a worker does whose steps succeed."""
    step = claim(registry, volume)
    after = step.state
    for event in events:
        registry.volume_steps.extend_claim(step.claim, after, 60)
        after = registry.volume_steps.advance(step.claim, event)
    return after


def attach(registry: Registry, volume: Volume, build: Build) -> None:
    registry.volumes.attach(volume.id, build.vm_id, actor=ACTOR)
    events = [VolumeEvent.ATTACHED]
    if state(registry, volume) is VolumeState.CREATING:
        events.insert(0, VolumeEvent.CREATED)
    assert advance(registry, volume, *events) is VolumeState.ATTACHED


def test_a_volume_holds_its_size_on_its_host(register: Registry) -> None:
    (host,) = a_cluster(register)
    build = running(register, host)
    before = committed(register, host)
    volume = a_volume(register)
    assert committed(register, host) == before, "without a file it holds nothing anywhere"
    register.volumes.attach(volume.id, build.vm_id, actor=ACTOR)
    assert committed(register, host) == before + 10, "from the call on, before the file is made"
    advance(register, volume, VolumeEvent.CREATED, VolumeEvent.ATTACHED)
    register.volumes.detach(volume.id, actor=ACTOR)
    advance(register, volume, VolumeEvent.DETACHED)
    assert committed(register, host) == before + 10, "its file stays in the pool"
    register.volumes.remove(volume.id, actor=ACTOR)
    assert committed(register, host) == before + 10, "until the file is proven absent"
    assert advance(register, volume, VolumeEvent.ABSENT) is VolumeState.REMOVED
    assert committed(register, host) == before
    assert register.check() == []


def test_a_volume_has_one_vm_at_a_time(register: Registry, raw: RawSql) -> None:
    (host,) = a_cluster(register)
    one, other = running(register, host), running(register, host)
    volume = a_volume(register)
    attach(register, volume, one)
    with pytest.raises(ConflictError, match=r"VM .* has it .*detach it first"):
        register.volumes.attach(volume.id, other.vm_id, actor=ACTOR)
    with pytest.raises(REFUSED, match="one VM at a time"):
        raw.run("UPDATE volumes SET assignment_id = ?", raw.key(other.claim.assignment_id))


def test_an_attach_may_be_repeated(register: Registry) -> None:
    (host,) = a_cluster(register)
    build = running(register, host)
    volume = a_volume(register)
    for _ in range(2):
        found = register.volumes.attach(volume.id, build.vm_id, actor=ACTOR)
        assert (found.state, found.vm_id, found.host) == ("creating", build.vm_id, host.name)
    advance(register, volume, VolumeEvent.CREATED, VolumeEvent.ATTACHED)
    assert register.volumes.attach(volume.id, build.vm_id, actor=ACTOR).state == "attached"


def test_a_volume_outlives_its_vm(register: Registry) -> None:
    (host,) = a_cluster(register)
    build = running(register, host)
    kept, unmade = a_volume(register), a_volume(register, "unmade")
    attach(register, kept, build)
    register.volumes.attach(unmade.id, build.vm_id, actor=ACTOR)
    register.vms.delete(build.vm_id, actor=ACTOR)
    assert state(register, kept) is VolumeState.ATTACHED, "its domain may still run"
    remove_vm(register, build.claim.assignment_id)
    found = register.volumes.get(kept.id)
    assert (found.state, found.vm_id, found.host) == ("available", None, host.name)
    assert state(register, unmade) is VolumeState.WITHDRAWING
    assert advance(register, unmade, VolumeEvent.WITHDRAWN) is VolumeState.UNPLACED
    assert committed(register, host) == 10
    attach(register, kept, running(register, host))
    assert register.check() == []


def test_a_volume_is_attached_to_vms_on_its_host(register: Registry) -> None:
    here, there = a_cluster(register, hosts=2)
    volume = a_volume(register)
    attach(register, volume, running(register, here))
    register.volumes.detach(volume.id, actor=ACTOR)
    advance(register, volume, VolumeEvent.DETACHED)
    with pytest.raises(ConflictError, match="on another host than VM"):
        register.volumes.attach(volume.id, running(register, there).vm_id, actor=ACTOR)


def test_a_volume_without_room_is_refused(register: Registry) -> None:
    (host,) = a_cluster(register)
    build = running(register, host)
    large = a_volume(register, size_gib=100_000)
    with pytest.raises(ConflictError, match="no room for 100000 GiB"):
        register.volumes.attach(large.id, build.vm_id, actor=ACTOR)
    assert state(register, large) is VolumeState.UNPLACED
    assert register.volumes.remove(large.id, actor=ACTOR).state == "removed"


def test_vms_that_cannot_take_a_volume_say_why(register: Registry) -> None:
    (host,) = a_cluster(register)
    volume = a_volume(register)
    waiting = register.vms.list(request_id=add_request(register).id).items[0]
    with pytest.raises(ConflictError, match="has no host"):
        register.volumes.attach(volume.id, waiting.id, actor=ACTOR)
    deleted = running(register, host)
    register.vms.delete(deleted.vm_id, actor=ACTOR)
    with pytest.raises(ConflictError, match="is deleted"):
        register.volumes.attach(volume.id, deleted.vm_id, actor=ACTOR)
    for unknown in (uuid4(), running(register, host, tenant="b").vm_id):
        with pytest.raises(NotFoundError):
            register.volumes.attach(volume.id, unknown, actor=ACTOR)
    build = running(register, host)
    for number in range(MAX_ATTACHED):
        each = a_volume(register, f"v{number}", 1)
        register.volumes.attach(each.id, build.vm_id, actor=ACTOR)
    with pytest.raises(ConflictError, match=f"has {MAX_ATTACHED} volumes"):
        register.volumes.attach(volume.id, build.vm_id, actor=ACTOR)


def test_names_and_sizes_of_volumes_are_checked(register: Registry) -> None:
    a_cluster(register)
    volume = a_volume(register)
    with pytest.raises(DuplicateError):
        a_volume(register)
    assert a_volume(register, tenant="b").name == volume.name
    for size in (0, -1, 1 << 21):
        with pytest.raises(InvalidError, match="size_gib"):
            a_volume(register, "other", size)
    with pytest.raises(NotFoundError):
        a_volume(register, tenant="nobody-there")
    register.volumes.remove(volume.id, actor=ACTOR)
    assert a_volume(register).id != volume.id, "the name of a removed volume is free"


def test_quotas_count_volumes_before_they_have_files(register: Registry) -> None:
    (host,) = a_cluster(register)
    build = running(register, host)
    of_vm = build.resources["disk_gib"]
    register.quotas.set("a", {"disk_gib": of_vm + 50}, actor=ACTOR)
    volume = a_volume(register, size_gib=40)
    with pytest.raises(QuotaExceededError, match=f"{of_vm + 40} in use and 11 requested"):
        a_volume(register, "second", 11)
    with pytest.raises(QuotaExceededError):
        add_request(register, count=1 + 10 // of_vm)
    (use,) = register.quotas.get("a").limits
    assert (use.requested, use.held) == (of_vm + 40, of_vm)
    attach(register, volume, build)
    (use,) = register.quotas.get("a").limits
    assert (use.requested, use.held) == (of_vm + 40, of_vm + 40)


def test_quotas_limit_the_number_of_volumes_and_no_vms(register: Registry) -> None:
    (host,) = a_cluster(register)
    build = running(register, host)
    register.quotas.set("a", {"volumes": 2}, actor=ACTOR)
    attach(register, a_volume(register), build)
    other = a_volume(register, "other")
    with pytest.raises(QuotaExceededError, match="of a is 2 volumes, 2 in use and 1 requested"):
        a_volume(register, "third")
    (use,) = register.quotas.get("a").limits
    assert (use.resource, use.limit, use.requested, use.held) == ("volumes", 2, 2, 1)
    assert build_allowances(register.rounds.read_cluster(take_lease(register))) == ((), ())
    running(register, host)
    register.volumes.remove(other.id, actor=ACTOR)
    a_volume(register, "third")
    with pytest.raises(InvalidError, match="another name"):
        register.resources.add("volumes", "pieces", actor=ACTOR)


def test_shares_count_the_disk_of_volumes(register: Registry) -> None:
    (host,) = a_cluster(register)
    build = running(register, host)
    attach(register, a_volume(register), build)
    view = register.rounds.read_cluster(take_lease(register))
    place = view.resources.index("disk_gib")
    (tenant,) = [each for each in view.tenants if each.name == "a"]
    assert tenant.held[place] == build.resources["disk_gib"] + 10


def test_a_vm_with_volumes_does_not_move(register: Registry) -> None:
    here, there = a_cluster(register, hosts=2)
    build = running(register, here)
    volume = a_volume(register)
    register.volumes.attach(volume.id, build.vm_id, actor=ACTOR)
    with pytest.raises(MoveRefusedError, match="1 volume, which cannot move") as refused:
        register.moves.create(build.vm_id, there.name, reason="test", actor=ACTOR)
    assert refused.value.obstacle == "local_volume"


def test_a_vm_that_is_to_move_takes_no_volume(register: Registry) -> None:
    a_cluster(register)
    here, there = (add_host(register, name, domain_type="qemu") for name in ("k1", "k2"))
    build = running(register, here)
    register.moves.create(build.vm_id, there.name, reason="test", actor=ACTOR)
    with pytest.raises(ConflictError, match="moves: attach the volume when it has arrived"):
        register.volumes.attach(a_volume(register).id, build.vm_id, actor=ACTOR)


def test_an_error_that_passed_is_forgotten_when_the_step_succeeds(
    register: Registry, raw: RawSql
) -> None:
    (host,) = a_cluster(register)
    volume = a_volume(register)
    register.volumes.attach(volume.id, running(register, host).vm_id, actor=ACTOR)
    register.volume_steps.retry_later(claim(register, volume).claim, "no answer")
    assert register.volumes.get(volume.id).last_error == "no answer"
    raw.run(f"UPDATE volumes SET due_at = {raw.before('due_at', '9 seconds')}")
    raw.run(f"UPDATE volumes SET changed_at = {raw.before('changed_at', '19 seconds')}")
    advance(register, volume, VolumeEvent.CREATED, VolumeEvent.ATTACHED)
    assert register.volumes.get(volume.id).last_error is None


def test_a_host_with_volumes_is_not_retired(register: Registry) -> None:
    (host,) = a_cluster(register)
    build = running(register, host)
    attach(register, a_volume(register), build)
    with pytest.raises(ConflictError, match=r"capacity there: 1;.*; also volumes .* pool: 1;"):
        register.hosts.change_admin(host.name, HostAdminEvent.RETIRE, actor=ACTOR)
    register.vms.delete(build.vm_id, actor=ACTOR)
    remove_vm(register, build.claim.assignment_id)
    with pytest.raises(ConflictError, match="volumes of tenants in its pool: 1"):
        register.hosts.change_admin(host.name, HostAdminEvent.RETIRE, actor=ACTOR)


@pytest.mark.parametrize(
    ("state_before", "state_after"),
    [("available", "removed"), ("removing", "removed"), ("withdrawing", "unplaced")],
)
def test_a_host_whose_pool_is_lost_is_retired_with_its_volumes(
    register: Registry, state_before: str, state_after: str
) -> None:
    (host,) = a_cluster(register)
    build, volume = running(register, host), a_volume(register)
    if state_before == "withdrawing":
        register.volumes.attach(volume.id, build.vm_id, actor=ACTOR)
    else:
        attach(register, volume, build)
    register.vms.delete(build.vm_id, actor=ACTOR)
    remove_vm(register, build.claim.assignment_id)
    if state_before == "removing":
        register.volumes.remove(volume.id, actor=ACTOR)
    assert state(register, volume) == state_before
    register.hosts.change_admin(host.name, HostAdminEvent.RETIRE, actor=ACTOR, volumes_lost=True)
    found = register.volumes.get(volume.id)
    assert (found.state, found.host) == (state_after, None)
    assert committed(register, host) == 0
    assert register.check() == []


def test_steps_are_due_while_their_vm_is_settled(register: Registry) -> None:
    (host,) = a_cluster(register)
    build = running(register, host)
    volume = a_volume(register)
    assert register.volume_steps.claim(volume.id, "w1", 60) is None, "nothing is to be done"
    register.volumes.attach(volume.id, build.vm_id, actor=ACTOR)
    sent = {(due.task, due.id) for due in register.assignments.send_due_tasks(10, 30)}
    assert (CHANGE, volume.id) in sent
    assert register.volume_steps.claim(uuid4(), "w1", 60) is None
    claim(register, volume)
    assert register.volume_steps.claim(volume.id, "w2", 60) is None, "another worker has it"
    assert register.assignments.send_due_tasks(10, 0) == ()


def test_a_call_ends_the_claim_of_the_step_under_way(register: Registry) -> None:
    (host,) = a_cluster(register)
    volume = a_volume(register)
    register.volumes.attach(volume.id, running(register, host).vm_id, actor=ACTOR)
    step = claim(register, volume)
    register.volumes.detach(volume.id, actor=ACTOR)
    assert state(register, volume) is VolumeState.WITHDRAWING
    for late in (
        lambda: register.volume_steps.extend_claim(step.claim, step.state, 60),
        lambda: register.volume_steps.advance(step.claim, VolumeEvent.CREATED),
        lambda: register.volume_steps.retry_later(step.claim, "too late"),
    ):
        with pytest.raises(ClaimLostError):
            late()


def test_an_attachment_that_the_host_refuses_is_given_up(register: Registry, raw: RawSql) -> None:
    (host,) = a_cluster(register)
    volume = a_volume(register)
    register.volumes.attach(volume.id, running(register, host).vm_id, actor=ACTOR)
    refuse(register, raw, volume, "the pool is full", until=VolumeState.WITHDRAWING)
    assert advance(register, volume, VolumeEvent.WITHDRAWN) is VolumeState.UNPLACED
    assert register.volumes.get(volume.id).last_error == "the pool is full"
    build = running(register, host)
    found = register.volumes.attach(volume.id, build.vm_id, actor=ACTOR)
    assert found.last_error is None
    advance(register, volume, VolumeEvent.CREATED)
    refuse(register, raw, volume, "no slot", until=VolumeState.DETACHING)
    assert not claim(register, volume).overdue
    raw.run("UPDATE volumes SET detach_until = created_at, lease_until = created_at")
    assert claim(register, volume).overdue, "a guest that has the disk may keep it here, too"
    make_due(raw)
    assert advance(register, volume, VolumeEvent.DETACHED) is VolumeState.AVAILABLE


def refuse(
    registry: Registry, raw: RawSql, volume: Volume, error: str, *, until: VolumeState
) -> None:
    """Have the host refuse the step of a volume until it is given up."""
    for _ in range(20):
        make_due(raw)
        if state(registry, volume) is until:
            return
        registry.volume_steps.retry_later(claim(registry, volume).claim, error, refused=True)
    raise AssertionError(f"it is still {state(registry, volume)}")


def make_due(raw: RawSql) -> None:
    """Let the pauses and the claims of volumes' next steps be over."""
    raw.run("UPDATE volumes SET due_at = created_at, lease_until = created_at")


def test_a_guest_that_keeps_the_disk_stays_attached(register: Registry, raw: RawSql) -> None:
    (host,) = a_cluster(register)
    volume = a_volume(register)
    attach(register, volume, running(register, host))
    register.volumes.detach(volume.id, actor=ACTOR)
    step = claim(register, volume)
    assert not step.overdue
    register.volume_steps.poll_again(step.claim)
    assert register.volume_steps.claim(volume.id, "w1", 60) is None, "it is polled after a pause"
    make_due(raw)
    step = claim(register, volume)
    assert register.volume_steps.give_up_detach(step.claim) is VolumeState.ATTACHING
    assert register.volume_steps.advance(step.claim, VolumeEvent.ATTACHED) is VolumeState.ATTACHED
    found = register.volumes.get(volume.id)
    assert found.vm_id is not None
    assert "did not release the disk within 60 s" in str(found.last_error)


def test_volumes_are_listed_by_page_and_filter(register: Registry) -> None:
    (host,) = a_cluster(register)
    build = running(register, host)
    names = [a_volume(register, name, 1).name for name in ("one", "two", "three")]
    other = a_volume(register, "one", 1, tenant="b")
    first = register.volumes.list(tenant="a", limit=2)
    rest = register.volumes.list(tenant="a", limit=2, cursor=first.next)
    assert [each.name for each in (*first.items, *rest.items)] == names
    assert len(register.volumes.list().items) == 4
    attach(register, first.items[0], build)
    for found in (
        register.volumes.list(host=host.name),
        register.volumes.list(vm_id=build.vm_id),
        register.volumes.list(state=VolumeState.ATTACHED),
        register.volumes.list(tenant="a", name="one"),
    ):
        assert [each.id for each in found.items] == [first.items[0].id]
    assert [each.name for each in register.volumes.list(search="t").items] == ["two", "three"]
    register.volumes.remove(other.id, actor=ACTOR)
    assert register.volumes.list(tenant="b").items == ()
    assert register.volumes.tenant_of(other.id) == "b"


def test_removed_volumes_are_purged_after_their_time(register: Registry, raw: RawSql) -> None:
    a_cluster(register)
    gone, kept = a_volume(register, "gone"), a_volume(register, "kept")
    register.volumes.remove(gone.id, actor=ACTOR)
    raw.run(f"UPDATE volumes SET removed_at = {raw.before('removed_at', '500 days')}")
    while register.retention.purge_batch(Periods()):
        pass
    assert register.volumes.tenant_of(gone.id) is None
    assert register.volumes.tenant_of(kept.id) == "a"


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("UPDATE volumes SET size_gib = 100000000", "over capacity"),
        ("DELETE FROM volumes", "a volume with a file stays"),
        ("UPDATE inventories SET committed = 0", "the sum over assignments and volumes"),
    ],
)
def test_the_ledger_guards_volumes(
    register: Registry, raw: RawSql, statement: str, message: str
) -> None:
    (host,) = a_cluster(register)
    attach(register, a_volume(register), running(register, host))
    with pytest.raises(REFUSED, match=message):
        raw.run(statement)


def test_every_change_of_a_volume_is_an_event(register: Registry) -> None:
    (host,) = a_cluster(register)
    volume = a_volume(register)
    attach(register, volume, running(register, host))
    found = register.events.list(subject_id=str(volume.id))
    assert [(each.kind, each.to_state) for each in found] == [
        ("volume_created", None),
        ("volume_state", "creating"),
        ("volume_state", "attaching"),
        ("volume_state", "attached"),
    ]
    assert {each.tenant for each in found} == {"a"}


def test_a_group_has_no_volumes(register: Registry) -> None:
    a_cluster(register)
    add_group(register, "g")
    with pytest.raises(InvalidError, match="g is a group"):
        a_volume(register, tenant="g")
    with pytest.raises(NotFoundError):
        register.volumes.get(UUID(int=7))


def test_a_host_without_the_file_of_a_volume_differs(register: Registry) -> None:
    (host,) = a_cluster(register)
    build = running(register, host)
    lost, free = a_volume(register, "lost"), a_volume(register, "free")
    for each in (lost, free):
        attach(register, each, build)
    register.volumes.detach(free.id, actor=ACTOR)
    advance(register, free, VolumeEvent.DETACHED)
    names = {each.name: f"fuga-volume-{each.id}.qcow2" for each in (lost, free)}

    def differences(*files: str) -> list[tuple[str, str]]:
        report = a_report(a_domain(build), volumes=files, started_at=register.now())
        register.hosts.record_report(host.id, replace(report, unnamed=files))
        return [(each.difference, each.what) for each in register.differences.list(host.name)]

    assert differences(*names.values()) == [], "the ledger names them, attached or not"
    assert differences(names["free"]) == [
        ("volume_missing", f"{names['lost']}: volume lost, 10 GiB")
    ]
    register.volumes.attach(free.id, build.vm_id, actor=ACTOR)
    assert differences(names["lost"]) == [
        ("volume_missing", f"{names['free']}: volume free, 10 GiB")
    ], "no attachment makes the file again"
    register.volumes.detach(free.id, actor=ACTOR)
    advance(register, free, VolumeEvent.DETACHED)
    register.volumes.remove(free.id, actor=ACTOR)
    assert differences(names["lost"]) == [], "it is deleted just now"


def test_a_vm_that_lost_the_disk_gets_it_again(register: Registry) -> None:
    (host,) = a_cluster(register)
    build = running(register, host)
    volume = a_volume(register)
    before = register.now()
    attach(register, volume, build)

    def poll(*serials: str, started_at: datetime | None = None, known: bool = True) -> VolumeState:
        domain = replace(a_domain(build), attached=serials if known else None)
        file = f"fuga-volume-{volume.id}.qcow2"
        begun = started_at or register.now()
        register.hosts.record_report(host.id, a_report(domain, volumes=(file,), started_at=begun))
        return state(register, volume)

    assert poll(volume.id.hex[:20]) is VolumeState.ATTACHED
    assert poll(started_at=before) is VolumeState.ATTACHED, "it began before the disk was there"
    assert poll(known=False) is VolumeState.ATTACHED, "an earlier release reports no disks"
    assert poll("another") is VolumeState.ATTACHING
    assert advance(register, volume, VolumeEvent.ATTACHED) is VolumeState.ATTACHED


def test_a_domain_that_has_a_volume_against_the_ledger_is_reported(register: Registry) -> None:
    (host,) = a_cluster(register)
    one, two = running(register, host), running(register, host)
    volume = a_volume(register)
    attach(register, volume, one)
    file, unknown = f"fuga-volume-{volume.id}.qcow2", f"fuga-volume-{uuid4()}.qcow2"
    events = "volume_in_use"

    def poll(*domains: DomainReport) -> list[tuple[str, str]]:
        begun = register.now()
        register.hosts.record_report(host.id, a_report(*domains, volumes=(file,), started_at=begun))
        found = register.differences.list(host.name)
        return [(each.what, each.remedy) for each in found if each.difference == "volume_in_use"]

    def domain(build: Build, *files: str) -> DomainReport:
        attached = (volume.id.hex[:20],)
        return a_domain(build, attached=attached, volume_files=files)

    assert poll(domain(one, file), domain(two)) == []
    theirs = replace(a_stranger("rescue"), volume_files=(file, unknown))
    for _ in range(2):
        assert poll(domain(one, file), domain(two, file), theirs) == [
            (
                f"{file}: volume data of a, attached for VM {register.vms.get(one.vm_id).name};"
                f" domains fuga-{two.vm_id} and rescue have it",
                "note",
            )
        ]
        assert len(register.events.list(kind=events)) == 1, "once, not with each poll"
    register.volumes.detach(volume.id, actor=ACTOR)
    advance(register, volume, VolumeEvent.DETACHED)
    assert poll(domain(one, file), domain(two, unknown)) == [
        (f"{file}: volume data of a, available; domain fuga-{one.vm_id} has it", "note"),
        (
            f"{unknown}: a volume that this register center does not know;"
            f" domain fuga-{two.vm_id} has it",
            "note",
        ),
    ]
    assert len(register.events.list(kind=events)) == 3
    with pytest.raises(ConflictError, match="neither the domain nor the file is touched"):
        register.differences.repair(host.name, Difference.VOLUME_IN_USE, file, actor=ACTOR)
    assert [due.task for due in register.assignments.send_due_tasks(resend_after_s=0)] == []
    assert poll(domain(one), domain(two)) == []


@pytest.mark.parametrize(
    ("cause", "trouble"),
    [
        ("lost", "VM {vm} is lost: its host is up and has no such domain"),
        ("silent", "the storage pool of its host does not answer since 20"),
        ("down", "its host does not answer since 20"),
    ],
)
def test_a_volume_says_what_its_change_waits_for(
    register: Registry, raw: RawSql, cause: str, trouble: str
) -> None:
    (host,) = a_cluster(register)
    build, volume, spare = running(register, host), a_volume(register), a_volume(register, "spare")
    attach(register, volume, build)
    register.volumes.detach(volume.id, actor=ACTOR)
    assert register.volumes.get(volume.id).trouble is None
    if cause == "lost":
        register.hosts.record_report(host.id, a_report(started_at=register.now()))
    elif cause == "silent":
        raw.run("UPDATE hosts SET pool_silent_since = last_polled_at")
    else:
        register.hosts.record_miss(host.id, "timeout", unreachable_after=1, down_after=1)

    assert register.volume_steps.claim(volume.id, "w1", 60) is None
    found = {each.name: each.trouble or "" for each in register.volumes.list().items}

    expected = trouble.format(vm=register.vms.get(build.vm_id).name)
    assert found["data"].startswith(expected)
    assert host.name not in found["data"]
    assert found[spare.name] == ""
