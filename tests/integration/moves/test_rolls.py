"""Rolls over hosts: emptied by turns, worked on, seen up, active again; stopped and resumed."""

from __future__ import annotations

from uuid import UUID

import pytest

from controller.fork_server.children import Child, start_interpreter
from controller.plans.dry_run import DryRunInputs, dry_run_roll
from controller.plans.executor import PlanExecutor
from placement.rebalancing.model import RebalanceLimits
from registry import ConflictError, HostAdminEvent, UnknownNameError
from registry.errors import IllegalTransitionError
from registry.lifecycle import MoveState
from registry.moves import CommandEnd, NewRoll, RollLease, RollLimits, RollStep, StepReport
from tests.fakes.movers import Breaks
from tests.integration.moves.test_plans import InThisProcess, a_centre
from tests.integration.moves.world import MovingWorld
from tests.raw_sql import RawSql
from tests.register import ACTOR


def test_another_process_plans_the_turns_of_a_large_site(world: MovingWorld) -> None:
    world.running("h1")
    children: list[Child] = []

    def start(module: str, deadline: float) -> Child:
        children.append(start_interpreter(module, deadline))
        return children[-1]

    def asked() -> DryRunInputs:
        turns = [[each.id] for each in world.registry.rolls.targets(("h1",))]
        view = world.registry.plans.view_running(rest_s=0)
        return DryRunInputs(view=view, turns=turns, limits=RebalanceLimits())

    assert dry_run_roll(asked(), start=start, max_in_thread=0) == 1
    for other in ("h2", "h3"):
        world.registry.hosts.change_admin(other, HostAdminEvent.DRAIN, actor=ACTOR)
    with pytest.raises(ConflictError, match="host h1 cannot be emptied: 1 VMs have no place"):
        dry_run_roll(asked(), start=start, max_in_thread=0)
    with pytest.raises(ConflictError, match=r"whether the hosts can be emptied: .* was killed"):
        dry_run_roll(asked(), within_s=0.001, max_in_thread=0)

    assert [child.poll() is None for child in children] == [False, False]
    assert (
        dry_run_roll(
            DryRunInputs(view=asked().view, turns=[], limits=RebalanceLimits()), start=start
        )
        == 0
    )
    assert len(children) == 2  # a small site's are planned here


class Site:
    """A world, its control centre, and the driver of a roll."""

    def __init__(self, world: MovingWorld) -> None:
        self.world, self.registry = world, world.registry
        self.centre: PlanExecutor = a_centre(world, InThisProcess())
        self.ran: list[str] = []
        self.fails: set[str] = set()

    def begin(self, *hosts: str, at_once: int = 1, **limits: int) -> RollLease:
        targets = self.registry.rolls.targets(hosts or ("all",))
        keys = [each.id for each in targets]
        turns = [keys[at : at + at_once] for at in range(0, len(keys), at_once)]
        new = NewRoll(
            turns=turns,
            at_once=at_once,
            command="./update",
            driver="ops@desk:1",
            checked=len(turns),
            limits=RollLimits(**limits),
        )
        return self.registry.rolls.begin(new, actor=ACTOR)

    def step(self, claim: RollLease, told: StepReport | None = None) -> RollStep:
        """One step of the driver, and what everybody else does meanwhile."""
        turn = self.registry.rolls.drive(
            claim.roll.id, claim.token, told or StepReport(), actor=ACTOR
        )
        self.centre.advance()
        self.world.sweep()
        return turn

    def work(self, claim: RollLease, turn: RollStep) -> RollStep:
        """Run the command on hosts that are empty, and let them report afterwards."""
        begun = tuple(each.host for each in turn.hosts if each.phase == "empty")
        if not begun:
            return turn
        for host in begun:
            assert self.world.hosts[host].domains == {}
        self.step(claim, StepReport(begun=begun))
        self.ran += begun
        ended = tuple(
            CommandEnd(host=each, error="exit status 3" if each in self.fails else None)
            for each in begun
        )
        turn = self.step(claim, StepReport(ended=ended))
        for host in begun:
            self.world.report(host)
        return turn

    def drive(self, claim: RollLease, steps: int = 60) -> RollStep:
        """Drive until the roll goes no further."""
        for _ in range(steps):
            turn = self.work(claim, self.step(claim))
            if turn.roll.state != "running":
                return turn
        raise AssertionError(f"it still goes after {steps} steps: {turn}")

    def until(self, claim: RollLease, phase: str, steps: int = 20) -> RollStep:
        for _ in range(steps):
            turn = self.step(claim)
            if any(each.phase == phase for each in turn.hosts):
                return turn
        raise AssertionError(f"no host is {phase}: {turn}")

    def phases(self, claim: RollLease) -> dict[str, str]:
        return {each.host: each.phase for each in self.registry.rolls.hosts(claim.roll.id).items}

    def admin(self) -> dict[str, str]:
        return {host.name: host.admin for host in self.registry.hosts.list().items}


@pytest.fixture
def site(world: MovingWorld) -> Site:
    return Site(world)


def test_each_host_is_emptied_worked_on_and_active_again(world: MovingWorld, site: Site) -> None:
    vms = [world.running(host) for host in ("h1", "h1", "h2", "h3")]

    claim = site.begin()
    done = site.drive(claim)

    assert (done.roll.state, done.roll.done, done.roll.last_error) == ("done", 3, None)
    assert site.ran == ["h1", "h2", "h3"]
    assert set(site.admin().values()) == {"active"}
    assert all(len(world.runs(vm)) == 1 for vm in vms)
    events = [event.reason for event in world.registry.events.list(kind="host_admin")]
    assert events == [f"roll {claim.roll.id}"] * 6
    assert world.registry.check() == []


def test_hosts_of_one_turn_go_at_once_by_one_plan(world: MovingWorld, site: Site) -> None:
    for host in ("h1", "h2"):
        world.running(host)

    claim = site.begin("h1", "h2", at_once=2)
    first = site.step(claim)

    assert [each.phase for each in first.hosts] == ["emptying", "emptying"]
    site.step(claim)
    [plan] = world.registry.plans.list().items
    assert plan.arguments == {"hosts": ["h1", "h2"]}
    assert site.drive(claim).roll.state == "done"
    assert sorted(site.ran) == ["h1", "h2"]


def test_it_stops_at_the_first_failure_and_goes_on_from_there(
    world: MovingWorld, site: Site
) -> None:
    world.running("h2")
    site.fails = {"h2"}
    claim = site.begin()

    stopped = site.drive(claim)

    assert stopped.roll.state == "stopped"
    assert stopped.roll.last_error == "host h2: exit status 3"
    assert site.phases(claim) == {"h1": "done", "h2": "running", "h3": "waiting"}
    assert site.admin() == {"h1": "active", "h2": "maintenance", "h3": "active"}
    assert site.ran == ["h1", "h2"]

    site.fails = set()
    again = world.registry.rolls.resume(claim.roll.id, driver="b", command="./update", actor="boss")
    done = site.drive(again)

    assert (done.roll.state, site.ran) == ("done", ["h1", "h2", "h2", "h3"])
    with pytest.raises(ConflictError, match="is done: there is nothing to resume"):
        world.registry.rolls.resume(claim.roll.id, driver="b", command="./update", actor="boss")
    assert set(site.admin().values()) == {"active"}
    assert world.registry.check() == []


def test_hosts_of_a_turn_that_work_come_back_though_another_failed(
    world: MovingWorld, site: Site
) -> None:
    site.fails = {"h1"}

    stopped = site.drive(site.begin("h1", "h2", "h3", at_once=2))

    assert stopped.roll.state == "stopped"
    assert site.admin() == {"h1": "maintenance", "h2": "active", "h3": "active"}
    assert sorted(site.ran) == ["h1", "h2"]


def test_a_host_is_what_it_was_before(world: MovingWorld, site: Site) -> None:
    world.registry.hosts.change_admin("h1", HostAdminEvent.MAINTAIN, actor=ACTOR)
    world.registry.hosts.change_admin("h2", HostAdminEvent.DRAIN, actor=ACTOR)

    assert site.drive(site.begin()).roll.state == "done"

    assert site.admin() == {"h1": "maintenance", "h2": "draining", "h3": "active"}
    assert site.ran == ["h1", "h2", "h3"]


def test_a_host_that_somebody_activates_meanwhile_is_left_to_them(
    world: MovingWorld, site: Site
) -> None:
    world.registry.hosts.change_admin("h1", HostAdminEvent.DRAIN, actor=ACTOR)
    claim = site.begin("h1")
    site.until(claim, "empty")
    site.step(claim, StepReport(begun=("h1",)))
    world.registry.hosts.change_admin("h1", HostAdminEvent.ACTIVATE, actor="somebody")
    site.step(claim, StepReport(ended=(CommandEnd(host="h1"),)))
    world.report("h1")

    assert site.drive(claim).roll.state == "done"

    assert site.admin()["h1"] == "active"


def test_a_report_from_before_the_commands_end_proves_nothing(
    world: MovingWorld, site: Site
) -> None:
    claim = site.begin("h1")
    site.until(claim, "empty")
    site.step(claim, StepReport(begun=("h1",)))
    world.report("h1")
    site.step(claim, StepReport(ended=(CommandEnd(host="h1"),)))

    assert [each.phase for each in site.step(claim).hosts] == ["returning"]

    world.report("h1")
    assert [each.phase for each in site.step(claim).hosts] == ["done"]


def test_a_host_that_does_not_come_back_stops_the_roll_and_is_waited_for_again(
    world: MovingWorld, site: Site
) -> None:
    claim = site.begin("h1", up_within_s=0)
    site.until(claim, "empty")
    site.step(claim, StepReport(begun=("h1",)))
    site.step(claim, StepReport(ended=(CommandEnd(host="h1"),)))

    stopped = site.step(claim)

    assert stopped.roll.state == "stopped"
    assert "not seen up since" in str(stopped.roll.last_error)
    again = world.registry.rolls.resume(claim.roll.id, driver="b", command="c", actor=ACTOR)
    world.report("h1")
    assert site.drive(again).roll.state == "done"
    assert site.admin()["h1"] == "active"


def test_a_host_whose_vm_may_not_move_is_planned_again_and_then_stops_the_roll(
    world: MovingWorld, site: Site, raw: RawSql
) -> None:
    vm = world.running("h1")
    world.registry.vms.change_labels(vm.id, {"moves": "never"})
    claim = site.begin("h1", "h2")

    for _ in range(20):
        turn = site.step(claim)
        raw.run("UPDATE plans SET ended_at = requested_at")  # long ago
        raw.run("UPDATE plans SET ended_at = '2026-01-01 00:00:00' WHERE state = 'done'")
        if turn.roll.state != "running":
            break

    assert turn.roll.state == "stopped"
    assert turn.roll.last_error == f"host h1: VMs stay there: {vm.name} (label)"
    assert len(world.registry.plans.list().items) == 5
    assert site.ran == []
    left = world.registry.rolls.resume(
        claim.roll.id, driver="b", command="c", skipped=["h1"], actor=ACTOR
    )
    assert site.drive(left).roll.state == "done"
    assert site.ran == ["h2"]
    assert site.admin()["h1"] == "maintenance"


def test_a_roll_says_why_moves_failed_where_the_last_plan_no_longer_finds_a_host(
    world: MovingWorld, site: Site, raw: RawSql
) -> None:
    vm = world.running("h1")
    claim = site.begin("h1")
    world.movers.fail(Breaks.BEFORE)
    for _ in range(20):
        turn = site.step(claim)
        if world.registry.moves.list(state=MoveState.FAILED).items:
            for other in ("h2", "h3"):
                world.registry.hosts.change_admin(other, HostAdminEvent.DRAIN, actor=ACTOR)
        raw.run("UPDATE plans SET ended_at = '2026-01-01 00:00:00' WHERE ended_at IS NOT NULL")
        if turn.roll.state != "running":
            break

    assert turn.roll.state == "stopped"
    assert turn.roll.last_error is not None
    assert turn.roll.last_error.startswith(
        f"host h1: VMs stay there: {vm.name} (no eligible host; its last move failed: "
    )
    assert "told to fail" in turn.roll.last_error


def test_a_driver_that_is_told_to_stop_leaves_nothing_begun_behind(
    world: MovingWorld, site: Site
) -> None:
    claim = site.begin("h1", "h2")
    site.until(claim, "empty")
    site.step(claim, StepReport(begun=("h1",)))

    waits = site.step(claim, StepReport(stop="Ctrl-C"))
    assert waits.roll.state == "running"
    site.step(claim, StepReport(ended=(CommandEnd(host="h1"),), stop="Ctrl-C"))
    world.report("h1")
    site.step(claim, StepReport(stop="Ctrl-C"))
    stopped = world.registry.rolls.get(claim.roll.id)

    assert (stopped.state, stopped.last_error) == ("stopped", "Ctrl-C")
    assert site.phases(claim) == {"h1": "done", "h2": "waiting"}


def test_a_driver_that_leaves_ends_at_once(world: MovingWorld, site: Site) -> None:
    claim = site.begin("h1", "h2")
    site.until(claim, "empty")
    site.step(claim, StepReport(begun=("h1",)))

    left = site.step(claim, StepReport(stop="Ctrl-C", leave=True))

    assert left.roll.state == "stopped"
    assert site.phases(claim) == {"h1": "running", "h2": "waiting"}
    again = world.registry.rolls.resume(claim.roll.id, driver="b", command="c", actor=ACTOR)
    assert site.drive(again).roll.state == "done"


def test_who_resumes_takes_over_only_from_a_driver_that_is_gone(
    world: MovingWorld, site: Site, raw: RawSql
) -> None:
    claim = site.begin("h1")
    site.step(claim)
    with pytest.raises(ConflictError, match="ops@desk:1 drives the roll"):
        world.registry.rolls.resume(claim.roll.id, driver="b", command="c", actor=ACTOR)

    raw.run("UPDATE rolls SET driver_lease_until = began_at")
    again = world.registry.rolls.resume(claim.roll.id, driver="b", command="c", actor=ACTOR)

    with pytest.raises(ConflictError, match="another fuga drives the roll by now: b"):
        site.step(claim)
    assert site.drive(again).roll.state == "done"


def test_a_host_is_in_one_roll_at_a_time(world: MovingWorld, site: Site) -> None:
    first = site.begin("h1", "h2")

    with pytest.raises(ConflictError, match=f"roll {first.roll.id} goes over host h2"):
        site.begin("h2", "h3")

    other = site.begin("h3")
    assert site.drive(other).roll.state == "done"
    assert site.drive(first).roll.state == "done"
    assert site.drive(site.begin()).roll.state == "done"


def test_a_cancelled_roll_waits_for_what_goes_on_and_is_over(
    world: MovingWorld, site: Site, raw: RawSql
) -> None:
    claim = site.begin("h1", "h2")
    site.until(claim, "empty")
    site.step(claim, StepReport(begun=("h1",)))

    assert world.registry.rolls.cancel(claim.roll.id, actor="boss").state == "running"
    site.step(claim, StepReport(ended=(CommandEnd(host="h1"),)))
    world.report("h1")
    over = site.step(claim)

    assert (over.roll.state, over.roll.cancelled_by) == ("cancelled", "boss")
    assert site.admin() == {"h1": "active", "h2": "active", "h3": "active"}
    with pytest.raises(IllegalTransitionError):
        world.registry.rolls.cancel(claim.roll.id, actor="boss")
    gone = site.begin("h1")
    raw.run("UPDATE rolls SET driver_lease_until = began_at")
    assert world.registry.rolls.cancel(gone.roll.id, actor="boss").state == "cancelled"


@pytest.mark.parametrize("driven", [True, False])
def test_a_cancelled_roll_moves_nothing_more_away(
    world: MovingWorld, site: Site, raw: RawSql, *, driven: bool
) -> None:
    world.running()
    claim = site.begin("h1")
    world.registry.rolls.drive(claim.roll.id, claim.token, StepReport(), actor=ACTOR)
    world.registry.rolls.drive(claim.roll.id, claim.token, StepReport(), actor=ACTOR)
    [plan] = world.registry.plans.list().items
    if not driven:
        raw.run("UPDATE rolls SET driver_lease_until = began_at")

    world.registry.rolls.cancel(claim.roll.id, actor="boss")
    if driven:
        world.registry.rolls.drive(claim.roll.id, claim.token, StepReport(), actor=ACTOR)

    assert world.registry.rolls.get(claim.roll.id).state == "cancelled"
    over = world.registry.plans.get(plan.id)
    assert (over.state, over.last_error) == ("cancelled", f"roll {claim.roll.id} was cancelled")


def test_hosts_are_selected_by_name_by_label_or_all(world: MovingWorld) -> None:
    rolls = world.registry.rolls
    world.registry.hosts.update("h2", labels=["rack=3"], actor=ACTOR)

    def names(*selected: str, skipped: tuple[str, ...] = ()) -> list[str]:
        return [each.name for each in rolls.targets(selected, skipped)]

    assert names("all") == ["h1", "h2", "h3"]
    assert names("label=rack=3") == ["h2"]
    assert names("h3", "label=rack=3", "h3") == ["h2", "h3"]
    assert names("all", skipped=("h2",)) == ["h1", "h3"]
    for wrong in (("h9",), ("label=rack=4",)):
        with pytest.raises(UnknownNameError):
            names(*wrong)
    with pytest.raises(UnknownNameError):
        names("all", skipped=("h9",))


def test_pages_of_hosts_follow_their_order(world: MovingWorld, site: Site) -> None:
    roll: UUID = site.begin().roll.id

    first = world.registry.rolls.hosts(roll, limit=2)
    rest = world.registry.rolls.hosts(roll, limit=2, cursor=first.next)

    assert [each.host for each in (*first.items, *rest.items)] == ["h1", "h2", "h3"]
    assert rest.next is None
