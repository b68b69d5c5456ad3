"""Workers that bring images to hosts: killed, refused, outrun, stopped, or told that it is gone."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from threading import BoundedSemaphore, Event
from typing import Any
from uuid import UUID

import pytest

from hypervisor import DomainState, HostVolume, OperationFailedError
from monitor.translate import to_report
from registry import AssignmentState, CopyState, HostAdminEvent, Registry
from registry.db import uuid7
from registry.images import Image, ImageCopy, ImageStore, NewImage
from tests.fakes.hypervisor import PIECE, FakeHypervisor
from tests.integration.workers.test_crossings import PoolHosts
from tests.integration.workers.world import SHORT_LEASE_S, KilledError, World, eventually
from tests.raw_sql import raw_sql
from tests.register import ACTOR, add_host, add_request
from workers import image_copies, removals
from workers.context import TaskOutcome
from workers.host_limits import HostLimits

SIZE_BYTES = 3 * PIECE


class ImageWorld(World):
    """A host without a base volume, and an image in the store."""

    def __init__(self, registry: Registry, folder: Path, **host: Any) -> None:
        super().__init__(registry, base_volume=None, **host)
        self.store = ImageStore(folder, max_bytes=1 << 20)
        self.host.volumes.clear()
        self.image = self.add_image("debian")
        self.assignment_id = self.place(add_request(registry, image="debian").id)

    def add_image(self, name: str) -> Image:
        content, key = os.urandom(SIZE_BYTES), uuid7()
        with self.store.receive(key, "raw") as incoming:
            incoming.write(content)
            stored = incoming.store(hashlib.sha256(content).hexdigest())
        return self.registry.images.add(
            NewImage(name=name, format="raw"),
            id=key,
            sha256=stored.sha256,
            size_bytes=stored.size_bytes,
            virtual_size_bytes=stored.virtual_size_bytes,
            source=name,
            actor=ACTOR,
        )

    def copy(self, name: str = "debian") -> ImageCopy:
        [copy] = self.registry.images.copies(name)
        return copy

    def upload(self, owner: str = "w1", **changes: Any) -> TaskOutcome:
        return image_copies.upload_image(self.copy().id, self.worker(owner, **changes))

    def due(self) -> list[tuple[str, UUID]]:
        return [
            (each.task, each.id)
            for each in self.registry.assignments.send_due_tasks(resend_after_s=0)
        ]


@pytest.fixture
def world(register: Registry, tmp_path: Path) -> Iterator[ImageWorld]:
    return ImageWorld(register, tmp_path / "images")


def test_a_vm_boots_from_the_image_that_its_request_names(world: ImageWorld) -> None:
    sent: list[Any] = []

    assert world.upload(send=sent.append) is TaskOutcome.DONE
    assert [each.task for each in sent] == ["workers.create_vm"]
    assert world.build(world.assignment_id) is TaskOutcome.DONE

    [domain] = world.host.domains.values()
    assert domain.state is DomainState.RUNNING
    assert world.copy().state == CopyState.PRESENT
    assert [name for op, name in world.host.log if op == "create_overlay"]


def test_an_upload_that_is_done_or_claimed_is_not_done_again(world: ImageWorld) -> None:
    second: list[TaskOutcome] = []
    world.host.before("upload_send", lambda: second.append(world.upload("w2")))

    assert world.upload() is TaskOutcome.DONE

    assert second == [TaskOutcome.NOT_OURS]
    assert world.upload() is TaskOutcome.NOT_OURS


@pytest.mark.parametrize("point", ["upload.after_begin", "upload.piece", "upload.before_end"])
def test_a_killed_worker_leaves_nothing_that_a_vm_could_rest_on(
    world: ImageWorld, point: str
) -> None:
    def die(reached: str) -> None:
        if reached == point:
            raise KilledError

    # It never comes to its senses: what the host has of the upload, it has.
    world.host.upload = _without_cleaning(world)  # type: ignore[method-assign]
    with pytest.raises(KilledError):
        world.upload(checkpoint=die, lease_s=0, piece_deadline_s=0.0)
    left = set(world.host.volumes)
    assert world.copy().state == CopyState.UPLOADING

    assert world.upload("w2") is TaskOutcome.DONE

    [whole] = world.host.volumes.values()
    assert whole.name not in left
    assert whole.capacity_bytes == SIZE_BYTES
    assert world.build(world.assignment_id) is TaskOutcome.DONE


def _without_cleaning(world: ImageWorld) -> Any:
    """The host's upload, in which a killed caller deletes nothing."""
    clean = type(world.host).upload

    def upload(**arguments: Any) -> None:
        try:
            clean(world.host, **arguments)
        except KilledError:
            name = arguments["name"]
            world.host.volumes[name] = world.host.half_volume(name)
            raise

    return upload


def test_a_worker_that_was_outrun_deletes_its_own_and_no_more(world: ImageWorld) -> None:
    def outrun() -> None:
        assert world.upload("w2") is TaskOutcome.DONE

    world.host.before("upload_end", outrun)
    outcome = world.upload(lease_s=0, piece_deadline_s=0.0)

    assert outcome is TaskOutcome.CLAIM_LOST
    [whole] = world.host.volumes
    assert whole.startswith(f"fuga-image-{world.copy().id}.2")
    assert world.build(world.assignment_id) is TaskOutcome.DONE


def test_a_host_that_refuses_frees_the_vms_place_and_keeps_no_volume(world: ImageWorld) -> None:
    world.host.fail_at("upload_send", OperationFailedError("upload", "No space left", 38))

    assert world.upload() is TaskOutcome.FAILED

    assert world.host.volumes == {}
    assert world.copy().state == CopyState.FAILED
    assert world.state(world.assignment_id) == AssignmentState.RELEASED
    [vm] = world.registry.vms.list().items
    assert vm.last_error == "image debian:1 could not be brought to host h1: No space left"
    assert set(world.committed().values()) == {0}
    assert world.due() == []


def test_a_store_whose_file_changed_is_told_from_a_host_that_fails(world: ImageWorld) -> None:
    world.store.path(world.image.id, "raw").write_bytes(b"\0" * SIZE_BYTES)

    assert world.upload() is TaskOutcome.FAILED

    assert "SHA-256" in (world.copy().last_error or "")
    assert world.host.volumes == {}


def test_a_host_that_falls_silent_is_tried_again_from_the_start(world: ImageWorld) -> None:
    world.host.hang_at("upload_send", after=True)

    assert world.upload() is TaskOutcome.HANDED_BACK
    [half] = world.host.volumes
    assert world.copy().state == CopyState.ABSENT
    assert world.upload() is TaskOutcome.DONE

    [whole] = world.host.volumes
    assert whole != half


def test_an_upload_that_lasts_too_long_gives_its_thread_back(world: ImageWorld) -> None:
    assert world.upload(upload_deadline_s=-1.0) is TaskOutcome.HANDED_BACK

    assert world.copy().state == CopyState.ABSENT
    assert "the whole time for an upload" in (world.copy().last_error or "")
    assert world.host.volumes == {}


def test_uploads_leave_threads_for_builds(world: ImageWorld) -> None:
    threads = BoundedSemaphore(1)
    second: list[TaskOutcome] = []
    world.host.before(
        "upload_send", lambda: second.append(world.upload("w2", upload_threads=threads))
    )

    assert world.upload(upload_threads=threads) is TaskOutcome.DONE

    assert second == [TaskOutcome.NOT_OURS]
    assert threads.acquire(blocking=False)


def test_a_worker_that_is_told_to_end_hands_its_upload_back(world: ImageWorld) -> None:
    stopping = Event()
    world.host.before("upload_send", stopping.set)

    assert world.upload(stopping=stopping) is TaskOutcome.HANDED_BACK

    assert world.copy().state == CopyState.ABSENT
    assert world.host.volumes == {}
    assert world.upload(stopping=stopping) is TaskOutcome.NOT_OURS


def test_an_image_removed_during_its_upload_leaves_nothing_behind(world: ImageWorld) -> None:
    def remove() -> None:
        [request] = world.registry.requests.list().items
        world.registry.requests.delete(request.id, actor=ACTOR)
        world.registry.images.remove("debian", actor=ACTOR)

    world.host.before("upload_end", remove)
    assert world.upload() is TaskOutcome.CLAIM_LOST
    assert world.host.volumes == {}

    [(task, copy_id)] = world.due()
    assert task == "workers.remove_image"
    assert image_copies.remove_image_copy(copy_id, world.worker()) is TaskOutcome.DONE
    assert world.due() == []
    assert image_copies.remove_image_copy(copy_id, world.worker()) is TaskOutcome.NOT_OURS


def test_a_removal_waits_for_a_silent_host(world: ImageWorld) -> None:
    world.upload()
    [request] = world.registry.requests.list().items
    world.registry.requests.delete(request.id, actor=ACTOR)
    world.registry.images.remove("debian", actor=ACTOR)
    [(_, copy_id)] = world.due()
    world.host.hang_at("delete_volume")

    assert image_copies.remove_image_copy(copy_id, world.worker()) is TaskOutcome.HANDED_BACK
    assert image_copies.remove_image_copy(copy_id, world.worker()) is TaskOutcome.DONE
    assert world.host.volumes == {}


@pytest.mark.parametrize("problem", ["used", "unreachable", "slow"])
def test_an_image_in_a_shared_pool_goes_once_each_host_that_sees_it_says_it_is_unused(
    register: Registry, tmp_path: Path, problem: str
) -> None:
    world = ImageWorld(register, tmp_path / "images", labels=["shared_pool=nfs"])
    neighbour = FakeHypervisor("qemu+tcp://h2.test/system")
    add_host(register, "h2", uri=neighbour.uri, labels=["shared_pool=nfs"])
    hosts = HostLimits(PoolHosts(world.host, neighbour), max_threads=8, pause_s=0, wait_s=0)
    world.upload()
    [request] = world.registry.requests.list().items
    world.registry.requests.delete(request.id, actor=ACTOR)
    world.registry.images.remove("debian", actor=ACTOR)
    [(_, copy_id)] = world.due()
    [volume] = world.host.volumes
    worker = world.worker(hosts=hosts, lease_s=SHORT_LEASE_S)
    if problem == "used":
        neighbour.users[volume] = "an-operators-own"
    elif problem == "unreachable":
        neighbour.unreachable = True
    else:
        neighbour.before("users_of", lambda: time.sleep(2 * SHORT_LEASE_S))

    if problem != "slow":
        assert image_copies.remove_image_copy(copy_id, worker) is TaskOutcome.HANDED_BACK
        assert volume in world.host.volumes
        with raw_sql(register.database_url) as raw:
            error = raw.value("SELECT last_error FROM image_copies")
        assert ("an-operators-own of h2 uses" if problem == "used" else "h2.test") in error
        neighbour.users.clear()
        neighbour.unreachable = False

    eventually(lambda: image_copies.remove_image_copy(copy_id, worker) is TaskOutcome.DONE)
    assert world.host.volumes == {}


def copy_names(world: ImageWorld, *attempts: int) -> list[str]:
    return [f"fuga-image-{world.copy().id}.{attempt}.raw" for attempt in attempts]


def show(world: ImageWorld, *names: str, host: str = "h1") -> None:
    """Put volumes into the host's pool, and report them as unused by domains."""
    world.host.volumes |= {
        name: HostVolume(name=name, capacity_bytes=1 << 20, allocation_bytes=0) for name in names
    }
    started_at = world.registry.now()
    seen = replace(world.host.report("default"), unnamed=tuple(world.host.volumes))
    report = to_report(seen, started_at=started_at, polled_at=world.registry.now(), took_ms=1)
    world.registry.hosts.record_report(world.registry.hosts.get(host).id, report)


def sweep(world: ImageWorld) -> set[str]:
    """Remove what is due, and return the volumes that the host has then."""
    for task, key in world.due():
        if task == "workers.remove_leftover":
            removals.remove_leftover(key, world.worker(lease_s=SHORT_LEASE_S))
    return set(world.host.volumes)


def test_copies_that_were_superseded_go_if_nothing_rests_on_them(world: ImageWorld) -> None:
    world.upload()
    show(world)
    world.host.volumes.clear()
    show(world)  # another machine's pool: the copy is brought again
    assert world.upload() is TaskOutcome.DONE
    first, second, later = copy_names(world, 1, 2, 3)
    strange = f"fuga-image-{uuid7()}.1.raw"
    assert set(world.host.volumes) == {second}

    show(world, first, later, strange)  # the first machine is back
    world.host.users[first] = "theirs"
    assert sweep(world) == {first, second, later, strange}

    world.host.users.clear()
    eventually(lambda: sweep(world) == {second, later, strange})
    show(world)
    assert "workers.remove_leftover" not in dict(world.due())


def test_a_copy_of_a_retired_host_goes_where_its_machine_lives_on(world: ImageWorld) -> None:
    world.upload()
    [current] = copy_names(world, 1)
    add_host(world.registry, "h2", uri="qemu+tcp://h2.test/system")
    [request] = world.registry.requests.list().items
    world.registry.requests.delete(request.id, actor=ACTOR)
    show(world, host="h2")
    assert [task for task, _ in world.due() if task == "workers.remove_leftover"] == []

    world.registry.hosts.change_admin("h1", HostAdminEvent.DRAIN, actor=ACTOR)
    world.registry.hosts.change_admin("h1", HostAdminEvent.RETIRE, actor=ACTOR)
    show(world, host="h2")
    [(_, key)] = world.due()
    machine = FakeHypervisor("qemu+tcp://h2.test/system")
    machine.volumes = world.host.volumes
    hosts = HostLimits(PoolHosts(machine), max_threads=8, pause_s=0, wait_s=0)
    assert removals.remove_leftover(key, world.worker(hosts=hosts)) is TaskOutcome.DONE
    assert current not in world.host.volumes


def test_what_a_host_must_not_look_into_is_not_sent(world: ImageWorld) -> None:
    """An older release took it, or somebody wrote to the store."""
    evil = b"OOOM\0\0\0\2/run/a-fifo".ljust(SIZE_BYTES, b"\0")
    world.store.path(world.image.id, "raw").write_bytes(evil)

    assert world.upload() is TaskOutcome.FAILED

    assert "it is a COW image" in (world.copy().last_error or "")
    assert world.host.volumes == {}
    assert not [op for op, _ in world.host.log if op.startswith("upload")]


def test_a_store_without_the_file_is_told(world: ImageWorld) -> None:
    world.store.path(world.image.id, "raw").unlink()

    assert world.upload() is TaskOutcome.FAILED

    assert "No such file" in (world.copy().last_error or "")
