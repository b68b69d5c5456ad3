"""A host that is down is proven to be off, and only then are its VMs placed elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import pytest

from registry import (
    AnotherMachineError,
    AssignmentState,
    ClaimLostError,
    ConflictError,
    FenceState,
    HostAdminEvent,
    HostHealth,
    InvalidError,
    NotFoundError,
    Registry,
    StaleEpochError,
    VmDesiredEvent,
)
from registry.differences import Difference, Remedy
from registry.hosts import DomainReport, Host
from registry.ledger.failure_policy import FailurePolicy, failure_policy_of, is_replaced
from registry.rounds import Lease
from tests.raw_sql import RawSql
from tests.register import (
    ACTOR,
    a_cluster,
    a_domain,
    a_report,
    a_stranger,
    add_host,
    add_request,
    place,
    run_vm,
    take_lease,
)

REBUILD = "on_failure=rebuild"


@pytest.fixture
def hosts(register: Registry) -> tuple[Host, ...]:
    """Three hosts; h1 has a fence target and its VMs are to be replaced."""
    found = a_cluster(register, 3)
    register.hosts.update("h1", labels=[REBUILD], fence_target="bmc-1", actor=ACTOR)
    return found


@pytest.fixture
def lease(register: Registry, hosts: tuple[Host, ...]) -> Lease:
    return take_lease(register)


@pytest.fixture
def running(register: Registry, hosts: tuple[Host, ...], lease: Lease) -> UUID:
    """The assignment of a VM that runs on h1."""
    h1 = register.hosts.get("h1")
    (key,) = place(register, add_request(register), h1, lease=lease).assignment_ids
    run_vm(register, key)
    return key


def go_down(register: Registry, name: str = "h1") -> None:
    miss(register, name, down_after=1)


def miss(register: Registry, name: str, *, down_after: int) -> None:
    host = register.hosts.get(name)
    began = register.now()
    register.hosts.record_miss(
        host.id, "timeout", unreachable_after=1, down_after=down_after, started_at=began
    )


def come_back(
    register: Registry, *domains: Any, name: str = "h1", machine: str | None = None, **fields: Any
) -> Host:
    host = register.hosts.get(name)
    report = a_report(*domains, started_at=register.now(), **fields)
    return register.hosts.record_report(host.id, replace(report, machine_uuid=machine))


def ask(register: Registry, lease: Lease, **fields: Any) -> tuple[str, ...]:
    return register.fencing.request_for_failed_hosts(lease, **fields)


def go_down_and_ask(register: Registry, lease: Lease) -> None:
    """Let h1 be down, and its fencing be requested."""
    go_down(register)
    ask(register, lease)


def claim(register: Registry, owner: str = "w1") -> Any:
    return register.fencing.claim(register.hosts.get("h1").id, owner, 60)


def fence_state(register: Registry) -> FenceState | None:
    found = register.hosts.get("h1").fence
    return found.state if found is not None else None


def expire_claim(raw: RawSql) -> None:
    raw.run("UPDATE host_fences SET lease_until = '2020-01-01 00:00:00.000000'")


def tasks(register: Registry) -> list[str]:
    return [due.task for due in register.assignments.send_due_tasks(resend_after_s=0)]


# ---- who is fenced ----------------------------------------------------------


@pytest.mark.parametrize(
    ("labels", "by_default", "wanted"),
    [
        ([], "wait", "wait"),
        ([], "replace", "replace"),
        (["on_failure=replace", "ssd"], "wait", "replace"),
        (["on_failure=rebuild"], "replace", "rebuild"),
        (["on_failure=wait"], "rebuild", "wait"),
        (["on_failure=rebuild", "on_failure=replace"], "rebuild", "wait"),
        (["on_failure=whatever"], "rebuild", "wait"),
    ],
)
def test_a_label_goes_before_the_sites_default(
    labels: list[str], by_default: str, wanted: str
) -> None:
    assert failure_policy_of(labels, by_default=FailurePolicy(by_default)) == wanted


@pytest.mark.parametrize(
    ("wanted", "on_a_shared_pool", "on_its_own"),
    [("wait", False, False), ("replace", True, False), ("rebuild", True, True)],
)
def test_no_disk_is_lost_unsaid(wanted: str, on_a_shared_pool: bool, on_its_own: bool) -> None:
    assert is_replaced(FailurePolicy(wanted), "nfs") is on_a_shared_pool
    assert is_replaced(FailurePolicy(wanted), None) is on_its_own


def test_a_host_that_is_down_and_holds_vms_is_asked_for_once(
    register: Registry, lease: Lease, running: UUID
) -> None:
    assert ask(register, lease) == ()
    go_down(register)

    assert ask(register, lease) == ("h1",)
    assert ask(register, lease) == ()

    assert fence_state(register) == FenceState.PENDING
    (event,) = register.events.list(kind="host_fence")
    assert (event.actor, event.to_state, event.data["epoch"]) == ("cc-1", "pending", lease.epoch)
    assert tasks(register) == ["workers.fence_host"]
    assert register.assignments.state(running) == AssignmentState.ACTIVE
    assert register.check() == []


def test_a_host_whose_vms_wait_is_not_fenced(
    register: Registry, lease: Lease, running: UUID
) -> None:
    register.hosts.update("h1", labels=[], actor=ACTOR)
    go_down(register)

    assert ask(register, lease) == ()
    assert ask(register, lease, by_default=FailurePolicy.REBUILD) == ("h1",)


def test_a_host_that_holds_nothing_is_not_fenced(register: Registry, lease: Lease) -> None:
    go_down(register)

    assert ask(register, lease) == ()


def test_a_host_in_maintenance_is_not_fenced(
    register: Registry, lease: Lease, running: UUID
) -> None:
    register.hosts.change_admin("h1", HostAdminEvent.MAINTAIN, actor=ACTOR)
    go_down(register)

    assert ask(register, lease) == ()


def test_nobody_is_fenced_while_most_hosts_are_silent(
    register: Registry, lease: Lease, running: UUID
) -> None:
    go_down(register, "h1")
    go_down(register, "h2")

    assert ask(register, lease) == ()
    come_back(register, name="h2")
    assert ask(register, lease) == ("h1",)


def test_only_who_leads_asks(register: Registry, lease: Lease, running: UUID, raw: RawSql) -> None:
    go_down(register)
    raw.run("UPDATE leases SET epoch = epoch + 1")

    with pytest.raises(StaleEpochError):
        ask(register, lease)

    assert register.hosts.get("h1").fence is None


def test_a_host_without_a_target_fails_and_says_what_is_missing(
    register: Registry, lease: Lease, running: UUID
) -> None:
    register.hosts.update("h1", fence_target="", actor=ACTOR)
    go_down(register)

    ask(register, lease)

    fence = register.hosts.get("h1").fence
    assert fence is not None
    assert (fence.state, fence.attempts) == (FenceState.FAILED, 1)
    assert "--fence-target" in (fence.last_error or "")
    assert ask(register, lease) == ()  # not before a while has passed


@pytest.mark.parametrize("target", ["bmc-1", "BMC-1", "bmc-1."])
def test_two_hosts_have_no_target_in_common(
    register: Registry, lease: Lease, running: UUID, raw: RawSql, target: str
) -> None:
    with pytest.raises(ConflictError, match=r"fence target .* is that of host h1"):
        register.hosts.update("h2", fence_target=target, actor=ACTOR)
    with pytest.raises(ConflictError, match=r"fence target .* is that of host h1"):
        add_host(register, "h9", fence_target=target)
    register.hosts.update("h1", fence_target="bmc-1", labels=[REBUILD], actor=ACTOR)  # its own

    raw.run(
        f"UPDATE hosts SET fence_target = '{target}' WHERE name = 'h2'"
    )  # of an earlier release
    assert register.check() == ["hosts h1 and h2 have one fence target, bmc-1: neither is fenced"]
    go_down_and_ask(register, lease)
    assert claim(register) is None
    fence = register.hosts.get("h1").fence
    assert fence is not None
    assert "is that of host h2, too" in (fence.last_error or "")


# ---- what comes of it -------------------------------------------------------


def test_vms_of_a_fenced_host_are_decided_again_and_nothing_is_held_there(
    register: Registry, lease: Lease, running: UUID
) -> None:
    go_down_and_ask(register, lease)
    order = claim(register)
    assert (order.host, order.target) == ("h1", "bmc-1")
    assert claim(register, "w2") is None
    vm = register.vms.list().items[0]

    assert register.fencing.record_success(order) == 1

    assert fence_state(register) == FenceState.FENCED
    with pytest.raises(ConflictError, match=r"h1 counts as off since .* switch it off yourself"):
        register.fencing.request("h1", actor=ACTOR)
    assert register.assignments.state(running) == AssignmentState.RELEASED
    assert register.vms.get(vm.id).observed == "absent"
    assert {each.committed for each in register.hosts.get("h1").inventories} == {0}
    released = register.events.list(kind="assignment_state", subject_id=str(running))[-1]
    assert (released.event, released.tenant) == ("fenced", "a")
    assert "lost" in (released.reason or "")
    (again,) = place(
        register, register.requests.get(vm.request_id), register.hosts.get("h2"), lease=lease
    ).assignment_ids
    run_vm(register, again)
    assert register.vms.get(vm.id).host == "h2"
    assert tasks(register) == []
    assert register.check() == []


def test_a_deleted_vm_of_a_fenced_host_is_gone(
    register: Registry, lease: Lease, running: UUID
) -> None:
    vm = register.vms.list().items[0]
    register.vms.delete(vm.id, actor=ACTOR)
    go_down_and_ask(register, lease)

    register.fencing.record_success(claim(register))

    assert register.vms.get(vm.id).deleted_at is not None
    assert register.requests.get(vm.request_id).state == "released"
    assert register.check() == []


def test_what_was_asked_of_the_power_of_a_fenced_vm_is_dropped(
    register: Registry, lease: Lease, running: UUID
) -> None:
    vm = register.vms.list().items[0]
    register.vms.change_power(vm.id, VmDesiredEvent.REBOOT, actor=ACTOR)
    go_down_and_ask(register, lease)

    register.fencing.record_success(claim(register))

    assert register.vms.get(vm.id).power is None
    assert register.check() == []


def test_who_was_building_when_the_host_was_fenced_lost_its_claim(
    register: Registry, lease: Lease, hosts: tuple[Host, ...]
) -> None:
    h1 = register.hosts.get("h1")
    (key,) = place(register, add_request(register), h1, lease=lease).assignment_ids
    build = register.assignments.claim_build(key, "w1", 600)
    assert build is not None
    go_down_and_ask(register, lease)

    register.fencing.record_success(claim(register, "w2"))

    with pytest.raises(ClaimLostError):
        register.assignments.activate(build.claim)
    assert register.assignments.state(key) == AssignmentState.RELEASED


def test_a_failed_fencing_frees_nothing_and_is_tried_again_later(
    register: Registry, lease: Lease, running: UUID, raw: RawSql
) -> None:
    go_down(register)
    pauses = []
    for attempt in (1, 2, 3):
        assert ask(register, lease) == ("h1",)
        register.fencing.record_failure(claim(register), f"no answer {attempt}")
        fence = register.hosts.get("h1").fence
        assert fence is not None
        assert fence.retry_at is not None
        pauses.append(round((fence.retry_at - register.now()).total_seconds() / 60))
        assert (fence.state, fence.attempts) == (FenceState.FAILED, attempt)
        assert ask(register, lease) == ()
        raw.run("UPDATE host_fences SET retry_at = '2020-01-01 00:00:00.000000'")

    assert pauses == [1, 2, 4]
    assert register.assignments.state(running) == AssignmentState.ACTIVE
    failed = [each for each in register.events.list(kind="host_fence") if each.event == "failed"]
    assert [each.reason for each in failed] == ["no answer 1", "no answer 2", "no answer 3"]
    assert register.check() == []


def test_another_worker_takes_over_and_the_first_ones_word_counts_no_more(
    register: Registry, lease: Lease, running: UUID, raw: RawSql
) -> None:
    go_down_and_ask(register, lease)
    first = claim(register)
    expire_claim(raw)
    assert tasks(register) == ["workers.fence_host"]
    second = claim(register, "w2")

    for late in (
        lambda: register.fencing.extend_claim(first, 60),
        lambda: register.fencing.record_success(first),
        lambda: register.fencing.record_failure(first, "late"),
    ):
        with pytest.raises(ClaimLostError):
            late()

    assert register.assignments.state(running) == AssignmentState.ACTIVE
    assert register.fencing.record_success(second) == 1


# ---- a host that answers again ----------------------------------------------


def test_a_host_that_answers_before_anybody_fenced_it_is_up_and_keeps_its_vms(
    register: Registry, lease: Lease, running: UUID
) -> None:
    go_down_and_ask(register, lease)

    host = come_back(register)

    assert (host.health, host.fence) == (HostHealth.UP, None)
    assert claim(register) is None
    assert register.assignments.state(running) == AssignmentState.ACTIVE
    assert register.check() == []


def test_a_host_that_answers_while_it_is_being_fenced_stays_down(
    register: Registry, lease: Lease, running: UUID
) -> None:
    go_down_and_ask(register, lease)
    order = claim(register)

    host = come_back(register)

    assert host.health == HostHealth.DOWN
    assert "being fenced" in (host.last_error or "")
    assert register.fencing.record_success(order) == 1


def test_a_host_that_answers_after_its_fencing_worker_died_is_up(
    register: Registry, lease: Lease, running: UUID, raw: RawSql
) -> None:
    go_down_and_ask(register, lease)
    order = claim(register)
    expire_claim(raw)

    assert come_back(register).health == HostHealth.UP

    with pytest.raises(ClaimLostError):
        register.fencing.record_success(order)
    assert register.assignments.state(running) == AssignmentState.ACTIVE


def test_a_fenced_host_is_up_only_when_its_leftovers_are_gone(
    register: Registry, hosts: tuple[Host, ...], lease: Lease
) -> None:
    h1 = register.hosts.get("h1")
    (key,) = place(register, add_request(register), h1, lease=lease).assignment_ids
    build = run_vm(register, key)
    go_down_and_ask(register, lease)
    register.fencing.record_success(claim(register))
    old = {"volumes": (f"fuga-{key}.qcow2",)}

    host = come_back(register, a_domain(build, "stopped"), **old)

    assert (host.health, host.fence is None) == (HostHealth.DOWN, False)
    assert host.returning_since is not None
    assert "2 domains and volumes" in (host.last_error or "")
    assert ask(register, lease) == ()
    with pytest.raises(ConflictError, match="answering again"):
        register.fencing.confirm("h1", actor=ACTOR)
    left = register.assignments.send_due_tasks(resend_after_s=0)
    assert [due.task for due in left] == ["workers.remove_leftover"] * 2
    for due in left:
        assert register.assignments.claim_leftover(due.id, "w1", 60) is not None
        register.assignments.finish_leftover(due.id)

    assert come_back(register, a_domain(build, "stopped"), **old).health == HostHealth.DOWN
    host = come_back(register)

    assert (host.health, host.fence, host.returning_since) == (HostHealth.UP, None, None)
    changes = register.events.list(kind="host_health", subject_id=str(h1.id))
    assert [each.event for each in changes][-3:] == ["given_up", "returned", "answered"]
    assert register.check() == []


def test_a_returning_host_that_falls_silent_again_is_down_as_before(
    register: Registry, lease: Lease, running: UUID
) -> None:
    go_down_and_ask(register, lease)
    register.fencing.record_success(claim(register))
    come_back(register, volumes=(f"fuga-{running}.qcow2",))

    go_down(register)

    host = register.hosts.get("h1")
    assert (host.health, host.returning_since) == (HostHealth.DOWN, None)
    assert tasks(register) == []


# ---- by an operator ---------------------------------------------------------


def test_an_operator_has_a_host_fenced_whatever_its_labels_say(
    register: Registry, lease: Lease, running: UUID
) -> None:
    register.hosts.update("h1", labels=[], actor=ACTOR)
    go_down(register)

    register.fencing.request("h1", actor="cli")
    register.fencing.request("h1", actor="cli")

    fence = register.hosts.get("h1").fence
    assert fence is not None
    assert (fence.state, fence.requested_by) == (FenceState.PENDING, "cli")
    assert len(register.events.list(kind="host_fence")) == 1


def test_an_operators_word_that_a_host_is_off_frees_what_it_held(
    register: Registry, lease: Lease, running: UUID
) -> None:
    go_down(register)

    assert register.fencing.confirm("h1", actor="cli") == 1

    assert register.assignments.state(running) == AssignmentState.RELEASED
    (event,) = register.events.list(kind="host_fence")
    assert (event.event, event.actor) == ("confirmed", "cli")
    assert register.check() == []


def test_nobody_confirms_while_the_command_runs(
    register: Registry, lease: Lease, running: UUID
) -> None:
    go_down_and_ask(register, lease)
    claim(register)

    with pytest.raises(ConflictError, match="being fenced"):
        register.fencing.confirm("h1", actor="cli")


def test_a_host_that_is_up_is_neither_fenced_nor_taken_for_off(
    register: Registry, lease: Lease, running: UUID
) -> None:
    with pytest.raises(ConflictError, match="it is up"):
        register.fencing.request("h1", actor="cli")
    with pytest.raises(ConflictError, match="it is up"):
        register.fencing.confirm("h1", actor="cli")
    with pytest.raises(NotFoundError):
        register.fencing.request("h9", actor="cli")


def test_a_target_must_not_look_like_an_option(register: Registry, hosts: tuple[Host, ...]) -> None:
    with pytest.raises(InvalidError, match="fence_target"):
        register.hosts.update("h1", fence_target="--force", actor=ACTOR)


# ---- VMs that run elsewhere -------------------------------------------------


@pytest.mark.parametrize("state", ["running", "paused", "stopped"])
def test_a_host_whose_vms_another_reports_as_running_is_not_taken_for_off(
    register: Registry, lease: Lease, running: UUID, state: str
) -> None:
    """Its machine may run under another name: what is placed again would end them."""
    vm = register.vms.list().items[0]
    go_down_and_ask(register, lease)
    seen = a_stranger(name=vm.name, state=state, uuid=vm.id, assignment_id=running, generation=1)
    come_back(register, seen, name="h2")

    if state == "stopped":
        assert claim(register) is not None
        return
    miss(register, "h2", down_after=9)
    with pytest.raises(ConflictError, match=f"host h2 reports as running or paused: {vm.name}"):
        register.fencing.confirm("h1", actor=ACTOR)
    assert claim(register) is None
    fence = register.hosts.get("h1").fence
    assert fence is not None
    assert fence.state == FenceState.FAILED
    assert "shut these VMs down there" in (fence.last_error or "")
    assert register.assignments.state(running) == AssignmentState.ACTIVE
    come_back(register, name="h2")
    assert register.fencing.confirm("h1", actor=ACTOR) == 1


def test_a_host_whose_vms_run_under_another_name_of_its_machine_is_not_taken_for_off(
    register: Registry, lease: Lease, running: UUID
) -> None:
    """A second name is held back in enrolment and reports no foreign domains."""
    vm = register.vms.list().items[0]
    domain = a_stranger(
        name=vm.name, state="running", uuid=vm.id, assignment_id=running, generation=1
    )
    machine = str(uuid4())
    come_back(register, domain, machine=machine)
    go_down(register)
    add_host(register, "new-name", up=False)
    found = come_back(register, domain, name="new-name", machine=machine)
    assert (found.same_machine_as, found.health) == ("h1", "enrolling")

    for _ in range(10):  # missed polls, after which the name is as good as down
        with pytest.raises(ConflictError, match=f"host new-name .* running or paused: {vm.name}"):
            register.fencing.confirm("h1", actor=ACTOR)
        miss(register, "new-name", down_after=1)

    assert register.assignments.state(running) == AssignmentState.ACTIVE
    assert register.fencing.confirm("h1", actor=ACTOR) == 1


MACHINES = {name: str(uuid4()) for name in ("h1", "h2", "h3")}


@pytest.fixture
def exchanged(register: Registry, lease: Lease, running: UUID) -> Callable[..., None]:
    """Poll the hosts, which hold VMs, at addresses that lead to other hosts' machines."""
    domains = {"h1": a_vm_of(register, running, "h1")}
    for name in ("h2", "h3"):
        request = add_request(register, name=f"r-{name}")
        (key,) = place(register, request, register.hosts.get(name), lease=lease).assignment_ids
        run_vm(register, key)
        domains[name] = a_vm_of(register, key, name)
    for name, domain in domains.items():
        come_back(register, domain, name=name, machine=MACHINES[name], hostname=name)

    def poll(**machines: str) -> None:
        for address, name in machines.items():
            answer = {"machine": MACHINES[name], "hostname": name}
            if address == name:
                come_back(register, domains[name], name=address, **answer)
                continue
            with pytest.raises(AnotherMachineError):
                come_back(register, domains[name], name=address, **answer)
            miss(register, address, down_after=1)

    return poll


def a_vm_of(register: Registry, assignment: UUID, host: str) -> DomainReport:
    (vm,) = (each for each in register.vms.list().items if each.host == host)
    return a_stranger(
        name=vm.name, state="stopped", uuid=vm.id, assignment_id=assignment, generation=1
    )


@pytest.mark.parametrize(
    ("leads_to", "at"),
    [
        ({"h1": "h2", "h2": "h1"}, "h2"),
        ({"h1": "h2", "h2": "h3", "h3": "h1"}, "h3"),
        ({"h1": "h3", "h3": "h2", "h2": "h1"}, "h2"),
        ({"h2": "h1"}, "h2"),
    ],
)
def test_a_host_whose_machine_answers_at_another_hosts_address_is_not_taken_for_off(
    register: Registry,
    lease: Lease,
    running: UUID,
    exchanged: Callable[..., None],
    leads_to: dict[str, str],
    at: str,
) -> None:
    """Their VMs may be stopped: what is on their disks would be lost."""
    exchanged(**leads_to)
    go_down(register)
    said = f"its machine answers at the address of host {at}, .*fuga host set {at} --uri URI"

    with pytest.raises(ConflictError, match=said):
        register.fencing.confirm("h1", actor=ACTOR)
    with pytest.raises(ConflictError, match=said):
        register.fencing.request("h1", actor=ACTOR)
    register.hosts.change_admin("h1", HostAdminEvent.DRAIN, actor=ACTOR)
    with pytest.raises(ConflictError, match=r"cannot be retired: .* names those"):
        register.hosts.change_admin("h1", HostAdminEvent.RETIRE, actor=ACTOR)
    if "h1" in leads_to:
        [found] = register.differences.list("h1")
        assert (found.remedy, found.on_confirmation) == (Remedy.NOTE, None)
        assert f"is host {leads_to['h1']}: give host h1 its own address again" in found.why
        with pytest.raises(ConflictError, match="is not repaired by a word"):
            register.differences.repair(
                "h1", Difference.ANOTHER_MACHINE, MACHINES[leads_to["h1"]], actor=ACTOR
            )
    assert register.assignments.state(running) == AssignmentState.ACTIVE
    assert register.check() == []


def test_a_command_fences_no_host_whose_machine_answers_at_another_hosts_address(
    register: Registry, lease: Lease, running: UUID, exchanged: Callable[..., None]
) -> None:
    add_host(register, "h4")
    add_host(register, "h5")
    exchanged(h1="h2", h2="h1")
    assert ask(register, lease) == ("h1",)

    assert claim(register) is None

    fence = register.hosts.get("h1").fence
    assert fence is not None
    assert fence.state == FenceState.FAILED
    assert "answers at the address of host h2" in (fence.last_error or "")


@pytest.mark.parametrize("how", ["silent", "silent after the clock stepped back", "its own again"])
def test_a_machine_that_answered_at_another_hosts_address_counts_no_longer_than_it_answers(
    register: Registry, running: UUID, exchanged: Callable[..., None], raw: RawSql, how: str
) -> None:
    exchanged(h1="h2", h2="h1")
    if how == "its own again":
        exchanged(h2="h2")
    else:
        if "clock" in how:
            ahead = "2099-01-01 00:00:00.000000" + ("" if raw.dialect == "sqlite" else "+00:00")
            raw.run(f"UPDATE hosts SET last_missed_at = '{ahead}', last_polled_at = '{ahead}'")
        for _ in range(10):
            with pytest.raises(ConflictError, match="at the address of host h2"):
                register.fencing.confirm("h1", actor=ACTOR)
            miss(register, "h2", down_after=1)

    assert register.hosts.get("h2").found_machine_uuid is None
    assert register.fencing.confirm("h1", actor=ACTOR) == 1


def test_an_answer_of_another_machine_counts_anew_after_each_poll(
    register: Registry, running: UUID, exchanged: Callable[..., None]
) -> None:
    exchanged(h1="h2", h2="h1")
    for _ in range(3):
        for _ in range(6):
            miss(register, "h2", down_after=1)
        with pytest.raises(ConflictError, match="at the address of host h2"):
            register.fencing.confirm("h1", actor=ACTOR)
        exchanged(h2="h1")


def test_a_host_whose_machine_answers_at_another_hosts_address_is_given_no_new_one(
    register: Registry, running: UUID, exchanged: Callable[..., None]
) -> None:
    unknown = str(uuid4())
    exchanged(h2="h1")
    with pytest.raises(AnotherMachineError):
        come_back(register, name="h1", machine=unknown)

    with pytest.raises(ConflictError, match=r"by a word: .* at the address of host h2"):
        register.differences.repair("h1", Difference.ANOTHER_MACHINE, unknown, actor=ACTOR)

    exchanged(h2="h2")
    register.differences.repair("h1", Difference.ANOTHER_MACHINE, unknown, actor=ACTOR)
    assert register.hosts.get("h1").machine_uuid == unknown


@pytest.mark.parametrize("state", ["running", "paused", "stopped"])
@pytest.mark.parametrize("machine", [None, "made up"])
def test_a_machine_that_reports_no_known_uuid_is_the_host_whose_vms_it_runs(
    register: Registry,
    running: UUID,
    exchanged: Callable[..., None],
    machine: str | None,
    state: str,
) -> None:
    seen = replace(a_vm_of(register, running, "h1"), state=state)
    uuid = machine and str(uuid4())
    with pytest.raises(AnotherMachineError):
        come_back(register, seen, name="h2", machine=uuid, hostname="kvm9")
    go_down(register)

    if state == "stopped":  # it may be a copy
        assert register.fencing.confirm("h1", actor=ACTOR) == 1
        return
    with pytest.raises(ConflictError, match="its machine answers at the address of host h2"):
        register.fencing.confirm("h1", actor=ACTOR)
    with pytest.raises(ConflictError, match="which answers at the address of host h2, is host h1"):
        register.differences.repair("h2", Difference.ANOTHER_MACHINE, MACHINES["h1"], actor=ACTOR)


def test_a_machine_of_the_same_uuid_and_another_name_keeps_no_host_from_being_fenced(
    register: Registry, running: UUID, exchanged: Callable[..., None]
) -> None:
    register.hosts.update("h1", labels=[REBUILD, "machine=rack-1"], actor=ACTOR)
    with pytest.raises(AnotherMachineError):
        come_back(register, name="h2", machine=MACHINES["h1"], hostname="kvm99")
    go_down(register)

    assert register.fencing.confirm("h1", actor=ACTOR) == 1


@pytest.mark.parametrize("silent", ["h1", "new-name"])
def test_stopped_vms_of_a_host_stay_while_its_machine_answers_by_another_name(
    register: Registry, lease: Lease, running: UUID, raw: RawSql, silent: str
) -> None:
    machine = str(uuid4())
    second = add_host(register, "new-name")
    (key,) = place(register, add_request(register, name="r"), second, lease=lease).assignment_ids
    run_vm(register, key)
    for name, assignment in (("h1", running), ("new-name", key)):
        come_back(register, a_vm_of(register, assignment, name), name=name, machine=machine)
    assert register.hosts.get("new-name").same_machine_as == "h1"
    raw.run(f"UPDATE hosts SET health = 'down' WHERE name = '{silent}'")
    other = {"h1": "new-name", "new-name": "h1"}[silent]

    with pytest.raises(ConflictError, match=f"its machine answers as host {other}, so it is on"):
        register.fencing.confirm(silent, actor=ACTOR)

    raw.run(f"UPDATE hosts SET health = 'down' WHERE name = '{other}'")
    assert register.fencing.confirm(silent, actor=ACTOR) == 1


def test_a_vm_that_moves_to_a_dead_host_and_runs_at_its_source_keeps_none_from_being_fenced(
    register: Registry, lease: Lease, running: UUID, raw: RawSql
) -> None:
    """Its source may be a second name of a machine, whose report is read."""
    h2 = register.hosts.get("h2")
    request = add_request(register, name="mv")
    (key,) = place(register, request, h2, lease=lease).assignment_ids
    run_vm(register, key)
    [vm] = [each for each in register.vms.list().items if each.host == "h2"]
    domain = a_stranger(name=vm.name, state="running", uuid=vm.id, assignment_id=key, generation=1)
    come_back(register, domain, name="h2")
    raw.run("UPDATE hosts SET domain_type = 'kvm'")  # the test driver moves nothing
    register.moves.create(vm.id, "h1", reason="a new fan", actor=ACTOR)
    raw.run(
        "UPDATE hosts SET same_machine_as = (SELECT id FROM hosts WHERE name = 'h3')"
        " WHERE name = 'h2'"
    )
    go_down(register)

    assert register.fencing.confirm("h1", actor=ACTOR) == 2  # its VM, and the room of the move
