"""Moving a guest that runs from one host to another: the fakes, and real QEMU hosts."""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import replace

import pytest

from hypervisor import (
    DomainState,
    HostEndpoint,
    HostSilentError,
    HypervisorError,
    MigrationProgress,
    OperationFailedError,
    seed_name,
)
from lab.move_faults import move_process_ids
from tests.contract.moving_grounds import SLOW_MIB_S, Grounds, fake_grounds, grounds, real
from tests.fakes.movers import Breaks
from tests.servers.lab_hosts import lab_cluster
from tests.servers.running import eventually

__all__ = ["grounds", "lab_cluster", "real"]

RUNNING, PAUSED, STOPPED = DomainState.RUNNING, DomainState.PAUSED, DomainState.STOPPED


class CalledOffError(Exception):
    """What a teller may raise."""


def test_a_guest_that_moved_runs_at_the_destination_alone(grounds: Grounds) -> None:
    spec = grounds.running()
    wanted = grounds.arriving(spec, bandwidth_mib_s=SLOW_MIB_S)
    shown: list[MigrationProgress] = []

    done = grounds.live(wanted, on_progress=shown.append)

    assert grounds.states(spec) == (None, RUNNING)
    seen = grounds.destination.find(spec)
    assert (seen.mark, seen.name, seen.paused_by_move) == (wanted.mark, spec.name, False)
    assert (seen.vcpus, seen.memory_mib) == (spec.vcpus, spec.memory_mib)
    assert len(shown) > 2
    assert [each.elapsed_ms for each in shown] == sorted(each.elapsed_ms for each in shown)
    copying = [each for each in shown if each.iteration > 0]  # before that it is only prepared
    assert copying[-1].memory_remaining_bytes < copying[0].memory_remaining_bytes
    assert all(each.memory_total_bytes >= each.memory_remaining_bytes for each in shown)
    assert done.total_ms >= shown[-1].elapsed_ms
    assert done.memory_bytes > 1 << 20
    assert done.downtime_ms is not None
    assert 0 < done.downtime_ms < done.total_ms


def test_the_volumes_of_the_source_stay_until_they_are_removed_there(grounds: Grounds) -> None:
    spec = grounds.running(seed=True)
    wanted = grounds.arriving(spec)
    grounds.live(wanted)
    assert grounds.source.volumes() >= {spec.volume, str(spec.seed_volume)}

    assert grounds.source.remove(spec, generation=spec.mark.generation)

    assert not grounds.source.volumes() & {spec.volume, str(spec.seed_volume)}
    assert grounds.states(spec) == (None, RUNNING)
    assert grounds.remove_arriving(wanted)
    assert grounds.states(spec) == (None, None)
    assert not grounds.destination.volumes() & {wanted.volume, str(wanted.seed_volume)}


@pytest.mark.long
def test_what_moved_is_defined_at_the_destination_and_starts_there(grounds: Grounds) -> None:
    spec = grounds.running(seed=True)
    wanted = grounds.arriving(spec)
    grounds.live(wanted)
    run = grounds.destination.find(spec).run
    assert run is not None

    grounds.destination.host.power_off(spec.mark.vm_id, run=run)

    assert grounds.states(spec) == (None, STOPPED)
    assert grounds.destination.find(spec).mark == wanted.mark
    grounds.destination.host.start_paused(spec.mark.vm_id, guard=wanted.guard)
    grounds.destination.host.resume(spec.mark.vm_id)
    assert grounds.states(spec) == (None, RUNNING)


def test_what_arrives_is_seen_with_its_own_mark_from_the_first_moment(grounds: Grounds) -> None:
    spec = grounds.running()
    wanted = grounds.arriving(spec, bandwidth_mib_s=SLOW_MIB_S)
    seen = []

    def look(_: MigrationProgress) -> None:
        if not seen:
            report = grounds.destination.host.report(grounds.destination.pool, deadline_s=10)
            seen.extend(each for each in report.domains if each.uuid == wanted.vm_id)
            seen.append(grounds.destination.find(spec))
            seen.append(grounds.source.find(spec))

    grounds.live(wanted, on_progress=look)

    reported, there, here = seen
    for arriving in (reported, there):
        assert (arriving.mark, arriving.state) == (wanted.mark, PAUSED)
        assert arriving.paused_by_move
    assert (here.mark, here.state, here.paused_by_move) == (spec.mark, RUNNING, False)


@pytest.mark.long
def test_what_a_teller_raises_aborts_the_move_and_is_raised(grounds: Grounds) -> None:
    spec = grounds.running()
    wanted = grounds.arriving(spec, bandwidth_mib_s=SLOW_MIB_S)

    def call_off(_: MigrationProgress) -> None:
        raise CalledOffError

    with pytest.raises(CalledOffError):
        grounds.live(wanted, on_progress=call_off)

    assert grounds.states(spec) == (RUNNING, None)
    grounds.live(replace(wanted, bandwidth_mib_s=None))
    assert grounds.states(spec) == (None, RUNNING)


@pytest.mark.long
def test_a_move_past_its_deadline_is_aborted(grounds: Grounds) -> None:
    spec = grounds.running()
    wanted = grounds.arriving(spec, bandwidth_mib_s=4)

    with pytest.raises(OperationFailedError, match="called off"):
        grounds.live(wanted, deadline_s=2.0 if grounds.real else 0.0)

    assert grounds.states(spec) == (RUNNING, None)


def test_what_arrives_is_removed_while_it_still_arrives(grounds: Grounds) -> None:
    spec = grounds.running()
    wanted = grounds.arriving(spec, bandwidth_mib_s=SLOW_MIB_S)
    removed = []

    def remove(_: MigrationProgress) -> None:
        if not removed:
            removed.append(grounds.remove_arriving(wanted))

    with pytest.raises(OperationFailedError):
        grounds.live(wanted, on_progress=remove)

    assert removed == [True]
    assert grounds.states(spec) == (RUNNING, None)
    assert wanted.volume not in grounds.destination.volumes()


def test_what_the_source_is_told_while_a_guest_moves_is_refused_at_once(grounds: Grounds) -> None:
    spec = grounds.running()
    vm_id = spec.mark.vm_id
    run = grounds.source.find(spec).run
    assert run is not None
    wanted = grounds.arriving(spec, bandwidth_mib_s=SLOW_MIB_S)
    refused = []

    def switch(_: MigrationProgress) -> None:
        if refused:
            return
        for ask in (
            lambda: grounds.source.host.shut_down(vm_id, run=run, deadline_s=2),
            lambda: grounds.source.host.reset(vm_id, run=run, deadline_s=2),
            lambda: grounds.source.host.resume(vm_id, deadline_s=2),
            lambda: grounds.destination.host.resume(vm_id, deadline_s=2),
        ):
            with pytest.raises(OperationFailedError, match="move of domain") as error:
                ask()
            refused.append(error)

    grounds.live(wanted, on_progress=switch)

    assert len(refused) == 4
    assert grounds.states(spec) == (None, RUNNING)


def test_cutting_a_guests_power_at_the_source_ends_its_move(grounds: Grounds) -> None:
    spec = grounds.running()
    run = grounds.source.find(spec).run
    assert run is not None
    wanted = grounds.arriving(spec, bandwidth_mib_s=SLOW_MIB_S)

    with pytest.raises(OperationFailedError):
        grounds.live(
            wanted, on_progress=lambda _: grounds.source.host.power_off(spec.mark.vm_id, run=run)
        )

    assert grounds.states(spec) == (STOPPED, None)


def test_a_guest_that_is_off_is_not_moved_live(grounds: Grounds) -> None:
    spec = grounds.off()
    wanted = grounds.arriving(spec)

    with pytest.raises(OperationFailedError, match="not running"):
        grounds.live(wanted)

    assert grounds.states(spec) == (STOPPED, None)


def test_a_vm_that_is_not_there_is_not_moved(grounds: Grounds) -> None:
    spec = grounds.source.spec()
    wanted = grounds.arriving(spec)

    with pytest.raises(OperationFailedError, match=spec.mark.vm_id):
        grounds.live(wanted)


@pytest.mark.parametrize("missing", ["volume", "seed"])
def test_what_is_missing_at_the_destination_leaves_the_guest_alone(
    grounds: Grounds, missing: str
) -> None:
    spec = grounds.running(seed=True)
    wanted = grounds.arriving(spec)
    name = wanted.volume if missing == "volume" else str(wanted.seed_volume)
    grounds.destination.host.delete_volume(wanted.pool, name)

    with pytest.raises(OperationFailedError, match=name):
        grounds.live(wanted)

    assert grounds.states(spec) == (RUNNING, None)


@pytest.mark.long
def test_one_mover_moves_there_again_after_it_failed(grounds: Grounds) -> None:
    spec = grounds.running()
    wanted = grounds.arriving(spec, bandwidth_mib_s=SLOW_MIB_S)

    def call_off(_: MigrationProgress) -> None:
        raise CalledOffError

    with grounds.mover() as mover:
        with pytest.raises(CalledOffError):
            mover.move_live(wanted, deadline_s=60, on_progress=call_off)
        mover.move_live(
            replace(wanted, bandwidth_mib_s=None), deadline_s=60, on_progress=lambda _: None
        )

    assert grounds.states(spec) == (None, RUNNING)


@pytest.mark.sampled(2)
@pytest.mark.qemu
@pytest.mark.parametrize("base", ["image", "base.qcow2"])
def test_the_guest_lives_on_in_the_same_boot_with_what_it_wrote(real: Grounds, base: str) -> None:
    real.rest_on(base)
    spec = real.running()
    real.begin_beating(spec)
    # Past the base image's end, so that nothing but this was ever there; and its memory.
    real.order(real.source, spec, "echo before | dd of=/dev/vda bs=1M seek=900 conv=fsync")
    real.order(real.source, spec, "echo remembered >/tmp/word")
    wanted = real.arriving(spec)
    lines_before = real.console(real.source, spec)

    real.live(wanted)

    eventually(lambda: len(real.beats(real.destination, spec)) > 3)
    here, there = real.beats(real.source, spec), real.beats(real.destination, spec)
    assert here[-1] < there[0] < here[-1] + 10  # not from the beginning: the same boot
    assert there == sorted(there)
    assert b"LAB-GUEST-READY" not in real.console(real.destination, spec)
    # What it said before stays readable at the source, until it is removed there.
    assert real.console(real.source, spec).startswith(lines_before)
    assert real.order(real.destination, spec, "cat /tmp/word") == ["remembered"]
    assert real.order(real.destination, spec, "dd if=/dev/vda bs=1M skip=900 count=1 | head -n1")[
        0
    ].startswith("before")
    assert real.source.remove(spec)
    assert real.console(real.source, spec) == b""
    for ground, name in real.images[:1]:
        ground.host.delete_volume(ground.pool, name)
    real.destination.host.destroy(wanted.vm_id)
    real.start_at_destination(wanted)


@pytest.mark.qemu
def test_a_move_whose_process_is_killed_is_cancelled(real: Grounds) -> None:
    spec = real.running()
    wanted = real.arriving(spec, bandwidth_mib_s=SLOW_MIB_S)
    before = move_process_ids()

    def kill(_: MigrationProgress) -> None:
        for pid in move_process_ids() - before:
            os.kill(pid, signal.SIGKILL)

    with pytest.raises(HostSilentError):
        real.live(wanted, on_progress=kill)

    eventually(lambda: real.states(spec) == (RUNNING, None), within_s=10)
    assert real.remove_arriving(wanted)
    assert move_process_ids() == before


@pytest.mark.qemu
def test_a_move_is_cancelled_with_the_process_that_asked_for_it(real: Grounds) -> None:
    spec = real.running()
    wanted = real.arriving(spec, bandwidth_mib_s=4)
    mover = real.mover()
    begun = threading.Event()
    failed: list[BaseException] = []

    def move() -> None:
        try:
            mover.move_live(wanted, deadline_s=120, on_progress=lambda _: begun.set())
        except HypervisorError as error:
            failed.append(error)

    moving = threading.Thread(target=move)
    moving.start()
    assert begun.wait(30)
    started = time.monotonic()

    # All that the child sees of a worker that was killed: nobody holds its pipe any more.
    mover._child.close_input()

    moving.join(30)
    assert failed
    assert time.monotonic() - started < 10
    eventually(lambda: real.states(spec) == (RUNNING, None), within_s=10)
    mover.close()


@pytest.mark.long
@pytest.mark.qemu
def test_an_address_that_leads_nowhere_leaves_the_guest_alone(real: Grounds) -> None:
    spec = real.running()
    wanted = real.arriving(spec, address="192.0.2.1")

    with pytest.raises(HypervisorError):
        real.live(wanted, deadline_s=5)

    eventually(lambda: real.states(spec) == (RUNNING, None), within_s=20)


@pytest.mark.qemu
def test_a_host_that_is_not_there_is_told_by_its_uri(real: Grounds) -> None:
    spec = real.running()
    wanted = real.arriving(spec)
    nowhere = HostEndpoint("qemu+tcp://127.0.0.1:1/system")

    for ends in ((real.ends[0], nowhere), (nowhere, real.ends[1])):
        with real.movers(*ends) as mover, pytest.raises(HypervisorError, match=r"127\.0\.0\.1:1/"):
            mover.move_live(wanted, deadline_s=20, on_progress=lambda _: None)

    assert real.states(spec) == (RUNNING, None)


@pytest.mark.long
def test_a_seed_goes_by_the_name_of_the_assignment(grounds: Grounds) -> None:
    spec = grounds.running(seed=True)
    wanted = grounds.arriving(spec)
    assert wanted.seed_volume == seed_name(wanted.mark.assignment_id)

    grounds.live(wanted)

    assert grounds.source.remove(spec)
    assert grounds.destination.volumes() >= {wanted.volume, wanted.seed_volume}
    if grounds.real:  # not read before, so it comes from the destination's
        assert grounds.order(grounds.destination, spec, "head -c4 /dev/vdb; echo") == ["seed"]


class TestMisbehavingFake:
    """The ways in which only the fake can be made to fail."""

    @pytest.mark.parametrize(
        ("breaks", "left"),
        [
            (Breaks.BEFORE, (RUNNING, None)),
            (Breaks.COPYING, (RUNNING, None)),
            (Breaks.PENDING, (RUNNING, PAUSED)),
            (Breaks.NOWHERE, (PAUSED, None)),
            (Breaks.BOTH_PAUSED, (PAUSED, PAUSED)),
            (Breaks.SWITCHED, (PAUSED, RUNNING)),
            (Breaks.ARRIVED, (None, PAUSED)),
            (Breaks.DONE, (None, RUNNING)),
        ],
    )
    def test_a_move_breaks_where_it_is_told(
        self, breaks: Breaks, left: tuple[DomainState | None, DomainState | None]
    ) -> None:
        grounds = fake_grounds()
        assert grounds.fakes is not None
        spec = grounds.running()
        grounds.fakes.hang(breaks)

        with pytest.raises(HostSilentError):
            grounds.live(grounds.arriving(spec))

        assert grounds.states(spec) == left
        if left == (PAUSED, None):
            grounds.source.host.resume(spec.mark.vm_id)
            assert grounds.states(spec) == (RUNNING, None)
        if breaks is Breaks.ARRIVED:
            assert not grounds.destination.find(spec).paused_by_move
            grounds.destination.host.resume(spec.mark.vm_id)
            assert grounds.states(spec) == (None, RUNNING)

    def test_something_happens_in_the_middle_of_a_move(self) -> None:
        grounds = fake_grounds()
        assert grounds.fakes is not None
        spec = grounds.running()
        grounds.fakes.during = lambda: grounds.source.host.destroy(spec.mark.vm_id)

        with pytest.raises(OperationFailedError):
            grounds.live(grounds.arriving(spec))

        assert grounds.states(spec) == (STOPPED, None)
