"""What every host keeps to: the fake, libvirt's test driver, and real QEMU hosts."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest

from hypervisor import DomainState, HostUnreachableError, OperationFailedError, seed_name
from tests.contract.conftest import Ground
from tests.fakes.hypervisor import FakeHypervisor
from tests.servers.running import eventually

pytestmark = pytest.mark.essential


def test_a_report_tells_what_the_host_has(ground: Ground) -> None:
    report = ground.host.report(ground.pool)

    assert report.hostname
    assert report.vcpus > 0
    assert report.memory_mib > 0
    assert report.disk_gib > 0


def test_a_report_shows_a_domain_with_its_mark_and_the_size_of_its_disk(ground: Ground) -> None:
    spec = ground.spec()
    ground.create_volume(spec, capacity_gib=15)
    ground.host.define(spec)

    report = ground.host.report(ground.pool)

    seen = {domain.uuid: domain for domain in report.domains}[spec.mark.vm_id]
    assert (seen.name, seen.state, seen.mark) == (spec.name, DomainState.STOPPED, spec.mark)
    assert (seen.vcpus, seen.memory_mib, seen.disk_gib) == (1, 96, 15)
    assert spec.volume in {volume.name for volume in report.volumes}


def test_a_report_of_an_unknown_pool_is_refused(ground: Ground) -> None:
    with pytest.raises(OperationFailedError, match="no-such-pool"):
        ground.host.report("no-such-pool")


def test_a_vm_goes_from_a_volume_to_running_and_each_step_may_be_repeated(ground: Ground) -> None:
    spec, twice = ground.spec(), range(2)
    vm_id = spec.mark.vm_id

    for _ in twice:
        ground.create_volume(spec)
    for _ in twice:
        ground.host.define(spec)
    assert ground.find(spec).state is DomainState.STOPPED
    for _ in twice:
        ground.host.start_paused(vm_id)
    assert ground.find(spec).state is DomainState.PAUSED
    for _ in twice:
        ground.host.resume(vm_id)
    assert ground.find(spec).state is DomainState.RUNNING
    ground.host.start_paused(vm_id)
    assert ground.find(spec).state is DomainState.RUNNING
    for _ in twice:
        ground.host.destroy(vm_id)
    assert ground.find(spec).state is DomainState.STOPPED
    for _ in twice:
        ground.host.undefine(vm_id)
    assert ground.host.find(vm_id) is None
    for _ in twice:
        ground.host.delete_volume(ground.pool, spec.volume)
    assert spec.volume not in ground.volumes()


def test_a_domain_that_is_not_there_is_found_absent(ground: Ground) -> None:
    assert ground.host.find(str(uuid.uuid4())) is None


def test_what_is_not_there_cannot_be_started(ground: Ground) -> None:
    absent = str(uuid.uuid4())

    with pytest.raises(OperationFailedError, match=absent):
        ground.host.start_paused(absent)
    with pytest.raises(OperationFailedError, match=absent):
        ground.host.resume(absent)


def test_each_start_is_another_run(ground: Ground) -> None:
    spec = ground.spec()
    vm_id = spec.mark.vm_id
    ground.define(spec)
    off = ground.find(spec).run

    ground.host.start_paused(vm_id)
    first = ground.find(spec).run
    ground.host.destroy(vm_id)
    ground.host.start_paused(vm_id)

    assert off is None
    assert first is not None
    assert ground.find(spec).run not in {None, first}


def test_power_is_cut_and_reset_in_the_run_that_was_meant(ground: Ground) -> None:
    spec = ground.spec()
    vm_id = spec.mark.vm_id
    ground.run(spec)
    run = ground.find(spec).run
    assert run is not None
    another = run + 1000

    ground.host.power_off(vm_id, run=another)
    ground.host.shut_down(vm_id, run=another)
    with pytest.raises(OperationFailedError, match="was restarted"):
        ground.host.reset(vm_id, run=another)
    ground.host.reset(vm_id, run=run)
    assert ground.find(spec).state is DomainState.RUNNING
    assert ground.find(spec).run == run
    for _ in range(2):
        ground.host.power_off(vm_id, run=run)
    assert ground.find(spec).state is DomainState.STOPPED
    ground.host.shut_down(vm_id, run=run)
    with pytest.raises(OperationFailedError, match="off"):
        ground.host.reset(vm_id, run=run)


def test_a_guest_that_is_told_to_shut_down_does(ground: Ground) -> None:
    spec = ground.spec()
    vm_id = spec.mark.vm_id
    ground.run(spec)
    run = ground.find(spec).run
    assert run is not None
    if ground.name == "qemu":  # before that it hears nothing
        eventually(lambda: b"LAB-GUEST-READY" in ground.host.console_tail(vm_id).content)

    ground.host.shut_down(vm_id, run=run)

    eventually(lambda: ground.find(spec).state is DomainState.STOPPED)


def test_a_domain_that_is_off_is_not_resumed(ground: Ground) -> None:
    spec = ground.spec()
    ground.define(spec)

    with pytest.raises(OperationFailedError, match="is off"):
        ground.host.resume(spec.mark.vm_id)


def test_a_running_domain_is_not_undefined(ground: Ground) -> None:
    spec = ground.spec()
    ground.run(spec)

    with pytest.raises(OperationFailedError, match="still"):
        ground.host.undefine(spec.mark.vm_id)
    assert ground.find(spec).state is DomainState.RUNNING


def test_an_overlay_on_a_base_that_is_missing_is_refused(ground: Ground) -> None:
    with pytest.raises(OperationFailedError, match="no-such-base"):
        ground.host.create_overlay(
            pool=ground.pool, name=ground.spec().volume, base_volume="no-such-base", capacity_gib=5
        )


def test_a_domain_with_another_mark_is_not_defined_over(ground: Ground) -> None:
    first = ground.spec()
    ground.define(first)
    other_attempt, later = ground.spec(of=first), ground.next_generation(first)

    for spec in (other_attempt, later):
        with pytest.raises(OperationFailedError):
            ground.host.define(spec)
    assert ground.find(first).mark == first.mark


def test_a_name_that_another_domain_has_is_refused(ground: Ground) -> None:
    first = ground.spec()
    ground.define(first)
    second = replace(ground.spec(), name=first.name)

    with pytest.raises(OperationFailedError):
        ground.host.define(second)


def test_only_the_attempt_that_a_domain_carries_destroys_it(ground: Ground) -> None:
    spec = ground.spec()
    ground.run(spec)
    stale = replace(spec.mark, generation=spec.mark.generation - 1)
    another = replace(spec.mark, assignment_id=str(uuid.uuid4()))

    for mark in (stale, another):
        ground.host.destroy(spec.mark.vm_id, mark=mark)
        ground.host.undefine(spec.mark.vm_id, mark=mark)
    assert ground.find(spec).state is DomainState.RUNNING

    ground.host.destroy(spec.mark.vm_id, mark=spec.mark)
    assert ground.find(spec).state is DomainState.STOPPED


def test_removal_takes_domain_and_volume_and_proves_it(ground: Ground) -> None:
    spec = ground.spec()
    ground.run(spec)

    assert ground.remove(spec, generation=1)

    assert ground.host.find(spec.mark.vm_id) is None
    assert spec.volume not in ground.volumes()
    assert ground.remove(spec, generation=1)


@pytest.mark.parametrize("reached", ["nothing", "volume", "define", "start"])
def test_removal_proves_absence_wherever_a_build_stopped(ground: Ground, reached: str) -> None:
    spec = ground.spec()
    if reached != "nothing":
        ground.create_volume(spec)
    if reached in {"define", "start"}:
        ground.host.define(spec)
    if reached == "start":
        ground.host.start_paused(spec.mark.vm_id)

    assert ground.remove(spec)

    assert ground.host.find(spec.mark.vm_id) is None
    assert spec.volume not in ground.volumes()


def test_a_seed_is_attached_read_only_and_goes_with_its_vm(ground: Ground) -> None:
    if ground.name == "test_driver":
        pytest.skip("it takes no uploads")
    spec = ground.spec()
    spec = replace(spec, seed_volume=seed_name(spec.mark.assignment_id))
    for content in (b"begun by a worker that was killed", bytes(range(256)) * 1024):
        ground.host.put_volume(ground.pool, str(spec.seed_volume), content)

    ground.run(spec)

    volumes = {each.name: each for each in ground.host.report(ground.pool).volumes}
    assert volumes[str(spec.seed_volume)].capacity_bytes == 256 * 1024
    disks = {each.uuid: each.disk_gib for each in ground.host.report(ground.pool).domains}
    assert disks[spec.mark.vm_id] == 5  # the seed needs no room of its own
    assert ground.remove(spec)
    assert not ground.volumes() & {spec.volume, spec.seed_volume}


def test_removal_of_an_older_generation_leaves_the_newer_one_alone(ground: Ground) -> None:
    newer = ground.next_generation(ground.spec())
    ground.run(newer)

    assert not ground.remove(newer, generation=1)

    assert ground.find(newer).state is DomainState.RUNNING
    assert newer.volume in ground.volumes()


def test_removal_of_one_assignment_leaves_that_of_another_alone(ground: Ground) -> None:
    current = ground.spec()
    ground.run(current)
    old = ground.spec(of=current)
    ground.create_volume(old)

    assert ground.remove(old)

    assert ground.find(current).state is DomainState.RUNNING
    assert ground.volumes() >= {current.volume}
    assert old.volume not in ground.volumes()


def test_removal_takes_any_generation_when_none_is_named(ground: Ground) -> None:
    spec = ground.next_generation(ground.spec())
    ground.run(spec)

    assert ground.remove(spec, generation=None)
    assert ground.host.find(spec.mark.vm_id) is None


def test_a_host_can_be_asked_again_after_it_was_closed(ground: Ground) -> None:
    ground.host.close()

    assert ground.host.report(ground.pool).vcpus > 0


class TestMisbehavingFake:
    """The ways in which only the fake can be made to fail."""

    def test_it_is_unreachable_for_every_operation(self) -> None:
        ground = fake_ground()
        ground.host.unreachable = True
        spec = ground.spec()

        with pytest.raises(HostUnreachableError):
            ground.host.report("default")
        with pytest.raises(HostUnreachableError):
            ground.run(spec)

    def test_it_fails_at_an_operation_as_often_as_told(self) -> None:
        ground = fake_ground()
        ground.host.fail_at("define", times=2)
        spec = ground.spec()

        for _ in range(2):
            with pytest.raises(OperationFailedError):
                ground.define(spec)
        ground.define(spec)

    def test_it_may_have_done_what_it_never_answered(self) -> None:
        ground = fake_ground()
        ground.host.hang_at("start_paused", after=True)
        spec = ground.spec()
        ground.define(spec)

        with pytest.raises(HostUnreachableError):
            ground.host.start_paused(spec.mark.vm_id)
        assert ground.find(spec).state is DomainState.PAUSED

    def test_it_runs_out_of_room(self) -> None:
        ground = fake_ground()
        ground.host.pool_full = True

        with pytest.raises(OperationFailedError, match="No space left"):
            ground.create_volume(ground.spec())

    def test_it_logs_what_it_was_asked_and_lets_another_in_between(self) -> None:
        ground = fake_ground()
        spec = ground.spec()
        ground.host.before("resume", lambda: ground.host.destroy(spec.mark.vm_id))

        with pytest.raises(OperationFailedError):
            ground.run(spec)
        assert [op for op, _ in ground.host.log] == [
            "create_overlay",
            "define",
            "start_paused",
            "destroy",
            "resume",
        ]


class FakeGround(Ground):
    host: FakeHypervisor


def fake_ground() -> FakeGround:
    return FakeGround("fake", FakeHypervisor(), "qemu", "default", "base.qcow2")
