"""Workers that change volumes, and what may cross them, on a host in memory and both databases."""

from __future__ import annotations

from uuid import UUID

import pytest

from hypervisor import OperationFailedError, data_volume_name, disk_serial
from registry import Registry
from registry.volumes import Volume
from tests.integration.workers.world import SHORT_LEASE_S, KilledError, World, eventually
from tests.raw_sql import RawSql
from workers import builds, volumes
from workers.context import TaskOutcome


class VolumeWorld(World):
    """A world with one VM that runs, and one volume."""

    def __init__(self, registry: Registry, raw: RawSql) -> None:
        super().__init__(registry)
        self._raw = raw
        self.assignment_id, self.vm_id = self.run_another()
        self.id = registry.volumes.create("data", tenant="a", size_gib=5, actor="a").id
        self.file = data_volume_name(self.id)

    def run_another(self) -> tuple[UUID, UUID]:
        """Have one more VM that runs; return its assignment and its id."""
        key = self.request()
        builds.build_vm(key, self.worker())
        return key, self.vm_of(key).id

    @property
    def volume(self) -> Volume:
        return self.registry.volumes.get(self.id)

    @property
    def has_file(self) -> bool:
        return self.file in self.host.volumes

    def serials_of(self, vm_id: UUID) -> set[str]:
        return set(self.host.attached.get(str(vm_id), ()))

    def attach(self, vm_id: UUID | None = None) -> None:
        self.registry.volumes.attach(self.id, vm_id or self.vm_id, actor="a")

    def detach(self) -> None:
        self.registry.volumes.detach(self.id, actor="a")

    def step(self, **changes: object) -> TaskOutcome:
        """Let a worker go on, as soon as the row lets it."""
        return self._as_soon_as_possible(volumes.change_volume, self.id, **changes)

    def settle(self) -> str:
        """Let workers go on until nothing is left to do; return the state."""
        outcome = TaskOutcome.HANDED_BACK
        while outcome is not TaskOutcome.NOT_OURS:
            self.make_due()
            outcome = volumes.change_volume(self.id, self.worker())
        return self.volume.state

    def make_due(self) -> None:
        """Let pauses and claims be over."""
        self._raw.run("UPDATE volumes SET due_at = created_at, lease_until = NULL")


@pytest.fixture
def world(register: Registry, raw: RawSql) -> VolumeWorld:
    return VolumeWorld(register, raw)


def test_a_volume_goes_from_vm_to_vm_with_its_file(world: VolumeWorld) -> None:
    _, other = world.run_another()

    world.attach()
    assert world.step() is TaskOutcome.DONE
    assert (world.volume.state, world.serials_of(world.vm_id)) == (
        "attached",
        {disk_serial(world.id)},
    )
    made = world.host.volumes[world.file]
    assert made.capacity_bytes == 5 << 30
    world.detach()
    assert world.step() is TaskOutcome.DONE
    assert (world.volume.state, world.serials_of(world.vm_id)) == ("available", set())
    world.attach(other)
    world.step()
    assert world.serials_of(other) == {disk_serial(world.id)}
    assert world.host.volumes[world.file] == made
    world.detach()
    world.step()
    world.registry.volumes.remove(world.id, actor="a")
    world.step()
    assert (world.volume.state, world.has_file) == ("removed", False)
    assert world.registry.check() == []


def test_a_volume_stays_when_its_vm_is_removed(world: VolumeWorld) -> None:
    world.attach()
    world.step()
    world.delete_vm_of(world.assignment_id)
    assert world.remove(world.assignment_id) is TaskOutcome.DONE
    assert (world.volume.state, world.has_file) == ("available", True)
    world.report()
    assert world.registry.differences.list("h1") == ()
    _, other = world.run_another()
    world.attach(other)
    world.step()
    assert world.serials_of(other) == {disk_serial(world.id)}


def test_a_file_that_is_missing_is_never_made_a_second_time(world: VolumeWorld) -> None:
    world.attach()
    world.step()
    world.detach()
    world.step()
    del world.host.volumes[world.file]
    world.attach()
    for _ in range(10):
        world.make_due()
        volumes.change_volume(world.id, world.worker())
        assert not world.has_file
    assert world.volume.state == "available"
    assert f"no volume {world.file}" in str(world.volume.last_error)


def test_a_guest_that_keeps_its_disk_is_asked_until_its_time_is_over(
    world: VolumeWorld, raw: RawSql
) -> None:
    world.attach()
    world.step()
    world.host.clinging.add(str(world.vm_id))
    world.detach()
    assert world.step() is TaskOutcome.HANDED_BACK
    assert world.volume.state == "detaching"
    raw.run("UPDATE volumes SET detach_until = created_at")
    assert world.settle() == "attached"
    assert "did not release the disk" in str(world.volume.last_error)
    assert world.serials_of(world.vm_id) == {disk_serial(world.id)}
    world.host.clinging.clear()
    world.detach()
    assert world.settle() == "available"
    assert world.volume.last_error is None


def test_a_guest_that_releases_its_disk_too_late_gets_it_again(world: VolumeWorld) -> None:
    world.attach()
    world.step()
    serial = disk_serial(world.id)
    released = world.host.detach_disk(
        str(world.vm_id), assignment_id=str(world.assignment_id), serial=serial
    )
    assert released
    world.report()
    assert world.volume.state == "attaching"
    assert world.step() is TaskOutcome.DONE
    assert world.serials_of(world.vm_id) == {serial}


def test_an_attachment_that_the_host_refuses_leaves_no_file(world: VolumeWorld) -> None:
    before = world.committed()["disk_gib"]
    world.attach()
    refused = OperationFailedError("create_overlay", "pool full")
    world.host.fail_at("create_overlay", refused, times=9)
    assert world.settle() == "unplaced"
    assert (world.has_file, world.volume.host) == (False, None)
    assert "pool full" in str(world.volume.last_error)
    assert world.committed()["disk_gib"] == before


def test_a_host_that_does_not_answer_gives_nothing_up(world: VolumeWorld) -> None:
    world.attach()
    world.host.hang_at("attach_disk", times=10)
    for _ in range(10):
        world.make_due()
        assert volumes.change_volume(world.id, world.worker()) is TaskOutcome.HANDED_BACK
    assert world.volume.state == "attaching"
    assert world.settle() == "attached"


@pytest.mark.parametrize("state", ["creating", "attaching", "detaching", "removing", "withdrawing"])
def test_a_worker_that_dies_after_a_step_costs_nothing(world: VolumeWorld, state: str) -> None:
    def die(checkpoint: str) -> None:
        if checkpoint == f"volumes.after_{state}":
            raise KilledError

    world.attach()
    if state == "withdrawing":
        world.detach()
    elif state in {"detaching", "removing"}:
        world.step()
        world.detach()
    if state == "removing":
        world.step()
        world.registry.volumes.remove(world.id, actor="a")
    with pytest.raises(KilledError):
        world.step(checkpoint=die, lease_s=SHORT_LEASE_S)
    assert world.volume.state == state
    ends = {
        "creating": "attached",
        "attaching": "attached",
        "detaching": "available",
        "removing": "removed",
        "withdrawing": "unplaced",
    }
    world.step()
    assert world.volume.state == ends[state]
    assert world.has_file is (ends[state] in {"attached", "available"})
    assert world.registry.check() == []


def test_a_detach_that_crosses_the_attachment_wins(world: VolumeWorld) -> None:
    for op, left in (("create_overlay", "unplaced"), ("attach_disk", "available")):
        world.attach()
        world.host.after(op, world.detach)
        assert world.step() is TaskOutcome.CLAIM_LOST
        assert world.settle() == left
        assert world.serials_of(world.vm_id) == set()


def test_a_vm_that_is_deleted_under_way_takes_no_volume_along(world: VolumeWorld) -> None:
    world.attach()
    world.host.after("attach_disk", lambda: world.delete_vm_of(world.assignment_id))
    world.step()
    world.remove(world.assignment_id)
    assert world.settle() == "available"
    assert world.has_file
    assert eventually(lambda: world.registry.check() == [])
