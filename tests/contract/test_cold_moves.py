"""Moving a VM that is off: the fakes, and real QEMU hosts."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from hypervisor import DomainState, MigrationProgress, OperationFailedError
from tests.contract.moving_grounds import POOL_PATH, Grounds, grounds, real
from tests.servers.lab_hosts import lab_cluster

__all__ = ["grounds", "lab_cluster", "real"]

RUNNING, STOPPED = DomainState.RUNNING, DomainState.STOPPED


class CalledOffError(Exception):
    """What a teller may raise."""


def file_of(real: Grounds, number: int, volume: str) -> Path:
    assert real.lab is not None
    images_dir = real.lab.hosts[number - 1].images_dir
    assert images_dir is not None
    return images_dir / volume


def test_a_vm_that_is_off_is_at_the_destination_too_and_the_source_as_it_was(
    grounds: Grounds,
) -> None:
    spec = grounds.off()
    wanted = grounds.arriving(spec)
    shown: list[MigrationProgress] = []

    done = grounds.cold(wanted, on_progress=shown.append)

    assert grounds.states(spec) == (STOPPED, STOPPED)
    assert grounds.source.find(spec).mark == spec.mark
    assert grounds.destination.find(spec).mark == wanted.mark
    assert spec.volume in grounds.source.volumes()
    assert wanted.volume in grounds.destination.volumes()
    assert shown[-1].disk_remaining_bytes == 0
    assert shown[-1].disk_total_bytes >= done.disk_bytes > 0
    assert (done.downtime_ms, done.memory_bytes) == (None, 0)


def test_what_was_copied_starts_there_once_the_source_is_empty(grounds: Grounds) -> None:
    spec = grounds.off()
    wanted = grounds.arriving(spec)
    grounds.cold(wanted)

    assert grounds.source.remove(spec, generation=spec.mark.generation)
    grounds.start_at_destination(wanted)

    assert grounds.states(spec) == (None, RUNNING)
    assert grounds.remove_arriving(wanted)
    assert wanted.volume not in grounds.destination.volumes()


def test_a_copy_may_be_repeated_unless_it_has_arrived(grounds: Grounds) -> None:
    spec = grounds.off()
    wanted = grounds.arriving(spec)
    grounds.destination.host.delete_volume(wanted.pool, wanted.volume)  # it makes it itself

    grounds.cold(wanted)
    with pytest.raises(OperationFailedError, match="already"):
        grounds.cold(wanted)
    assert wanted.volume in grounds.destination.volumes()

    grounds.destination.host.undefine(wanted.vm_id)
    grounds.cold(wanted)
    assert grounds.states(spec) == (STOPPED, STOPPED)


def test_of_a_vm_that_is_off_there_is_no_move_to_abort(grounds: Grounds) -> None:
    """A worker that takes a copy over asks for it first."""
    spec = grounds.off()

    grounds.source.host.abort_move(spec.mark.vm_id)

    assert grounds.states(spec) == (STOPPED, None)


def test_a_guest_that_runs_is_not_copied(grounds: Grounds) -> None:
    spec = grounds.running()
    wanted = grounds.arriving(spec)

    with pytest.raises(OperationFailedError, match="is running"):
        grounds.cold(wanted)

    assert grounds.states(spec) == (RUNNING, None)


def test_a_domain_of_the_vm_at_the_destination_is_not_replaced(grounds: Grounds) -> None:
    spec = grounds.off()
    grounds.cold(grounds.arriving(spec))
    other = grounds.arriving(spec)

    with pytest.raises(OperationFailedError, match=spec.mark.vm_id):
        grounds.cold(other)

    assert grounds.destination.find(spec).mark != other.mark


def test_what_a_teller_raises_ends_the_copy_and_what_came_of_it_is_removed(
    grounds: Grounds,
) -> None:
    spec = grounds.off()
    wanted = grounds.arriving(spec)

    def call_off(_: MigrationProgress) -> None:
        raise CalledOffError

    with pytest.raises(CalledOffError):
        grounds.cold(wanted, on_progress=call_off)

    assert grounds.states(spec)[0] is STOPPED
    assert grounds.remove_arriving(wanted)
    assert grounds.states(spec) == (STOPPED, None)
    assert wanted.volume not in grounds.destination.volumes()


@pytest.mark.qemu
def test_the_guest_finds_what_it_wrote(real: Grounds) -> None:
    spec = real.running(seed=True)
    # 24 MiB of noise, a hole, and a word at the end.
    real.order(real.source, spec, "dd if=/dev/urandom of=/dev/vda bs=1M count=24 seek=100")
    real.order(real.source, spec, "echo kept | dd of=/dev/vda bs=1M seek=900 conv=fsync; sync")
    real.switch_off(spec)
    wanted = real.arriving(spec)
    shown: list[MigrationProgress] = []

    done = real.cold(wanted, on_progress=shown.append)

    here, there = file_of(real, 1, spec.volume), file_of(real, 2, wanted.volume)
    assert hashlib.sha256(here.read_bytes()).digest() == hashlib.sha256(there.read_bytes()).digest()
    assert 24 << 20 < done.disk_bytes <= here.stat().st_size
    assert shown[0].disk_remaining_bytes > 24 << 20
    assert real.source.remove(spec)
    real.start_at_destination(wanted)
    said = real.order(real.destination, wanted, "dd if=/dev/vda bs=1M skip=900 count=1 | head -n1")
    assert said[0].startswith("kept")
    assert real.order(real.destination, wanted, "head -c4 /dev/vdb; echo") == ["seed"]


@pytest.mark.sampled(6)
@pytest.mark.qemu
@pytest.mark.parametrize("base", ["image", "base.qcow2", "none"])
def test_a_disk_has_the_same_content_there_whatever_it_rests_on(real: Grounds, base: str) -> None:
    real.rest_on(base)
    spec = real.off()
    path = f"{POOL_PATH}/{spec.volume}"
    real.in_host(1, "qemu-io", "-c", "write -P 7 900M 1M", path)
    before = real.content(1, spec.volume)
    wanted = real.arriving(spec)
    real.check(wanted)

    real.cold(wanted)
    real.destination.host.undefine(wanted.vm_id)
    real.cold(wanted)  # it may be repeated

    assert real.content(1, spec.volume) == before
    assert real.content(2, wanted.volume) == before
    info = json.loads(
        real.in_host(2, "qemu-img", "info", "--output=json", f"{POOL_PATH}/{wanted.volume}")
    )
    rests_on = real.destination.base_volume
    assert info.get("backing-filename") == (rests_on and f"{POOL_PATH}/{rests_on}")
    assert real.source.remove(spec)
    if base == "none":
        return  # nothing boots from it
    for ground, name in real.images[:1]:
        ground.host.delete_volume(ground.pool, name)
    real.start_at_destination(wanted)
    assert real.states(spec) == (None, RUNNING)


@pytest.mark.qemu
def test_holes_in_a_disk_are_not_sent(real: Grounds) -> None:
    spec = real.off()
    here = file_of(real, 1, spec.volume)
    with here.open("r+b") as file:
        file.truncate(200 << 20)  # a file whose end nobody wrote
    wanted = real.arriving(spec)

    done = real.cold(wanted)

    there = file_of(real, 2, wanted.volume)
    assert there.stat().st_size == 200 << 20
    assert there.stat().st_blocks * 512 < 2 << 20
    assert done.disk_bytes < 2 << 20


@pytest.mark.qemu
def test_a_copy_keeps_to_its_bandwidth_and_ends_at_its_deadline(real: Grounds) -> None:
    spec = real.off()
    with file_of(real, 1, spec.volume).open("r+b") as file:
        file.seek(0, 2)
        file.write(b"x" * (12 << 20))
    wanted = real.arriving(spec, bandwidth_mib_s=2)
    shown: list[MigrationProgress] = []

    with pytest.raises(OperationFailedError, match="called off"):
        real.cold(wanted, on_progress=shown.append, deadline_s=2.0)

    assert real.states(spec) == (STOPPED, None)
    assert len(shown) >= 3
    assert shown[-1].rate_bytes_s < 4 << 20
    assert shown[-1].disk_remaining_bytes > 4 << 20
