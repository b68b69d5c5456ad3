"""Images in the register center, on both databases: offered, wanted, brought to hosts, removed."""

from __future__ import annotations

from typing import Any

import pytest

from registry import (
    AssignmentState,
    ClaimLostError,
    ConflictError,
    CopyState,
    ImageState,
    InvalidError,
    NotFoundError,
    Registry,
    VmDesiredEvent,
)
from registry.db import uuid7
from registry.images import Image, NewImage
from registry.tasks import Upload
from tests.integration.ledger.test_races import held_before_its_end, other, outcome
from tests.raw_sql import RawSql
from tests.register import (
    ACTOR,
    a_cluster,
    a_report,
    add_host,
    add_request,
    add_tenant,
    add_vm_type,
    place,
    remove_vm,
    run_vm,
    take_lease,
)

__all__ = ["other"]

GIB = 1 << 30


def add_image(registry: Registry, name: str = "debian", **fields: Any) -> Image:
    """Register an image of 2 GiB whose disk has 10."""
    of_name = {
        key: fields.pop(key) for key in ("seed_kind", "min_memory_mib", "format") if key in fields
    }
    defaults: dict[str, Any] = {
        "id": uuid7(),
        "sha256": "ab" * 32,
        "size_bytes": 2 * GIB,
        "virtual_size_bytes": 10 * GIB,
        "source": "debian.qcow2",
    }
    new = NewImage(**({"name": name, "format": "qcow2"} | of_name))
    return registry.images.add(new, actor=ACTOR, **(defaults | fields))


def upload_of(registry: Registry, owner: str = "w1", lease_s: float = 60) -> Upload:
    """Claim the only upload that is due."""
    [due] = [
        each
        for each in registry.assignments.send_due_tasks(resend_after_s=0)
        if "image" in each.task
    ]
    assert due.task == "workers.upload_image"
    upload = registry.image_copies.claim_upload(due.id, owner, lease_s)
    assert upload is not None
    return upload


def bring(registry: Registry) -> Upload:
    """Do what a worker does when all goes well."""
    upload = upload_of(registry)
    registry.image_copies.record_volume(upload.claim, upload.volume)
    registry.image_copies.record_progress(upload.claim, GIB, 60)
    registry.image_copies.finish_upload(upload.claim)
    return upload


def disk_of(registry: Registry, host: str = "h1") -> tuple[int, int]:
    """Return what a host offers of its disk, and what is committed of it."""
    [disk] = [each for each in registry.hosts.get(host).inventories if each.resource == "disk_gib"]
    return disk.capacity, disk.committed


def test_another_content_under_a_name_is_its_next_revision(register: Registry) -> None:
    first = add_image(register)
    again = add_image(register)
    second = add_image(register, sha256="cd" * 32)

    assert again == first
    assert (second.reference, second.state) == ("debian:2", ImageState.READY)
    assert register.images.get("debian") == second
    assert register.images.get("debian:1") == first
    assert [each.reference for each in register.images.list().items] == ["debian:1", "debian:2"]


@pytest.mark.parametrize("reference", ["debian", "debian:7", "debian:1:1", "", "DEBIAN", "x" * 99])
def test_what_is_not_on_offer_is_not_found(register: Registry, reference: str) -> None:
    with pytest.raises(NotFoundError):
        register.images.get(reference)


def test_a_failed_revision_is_listed_until_a_newer_one_is_ready(
    register: Registry, raw: RawSql
) -> None:
    def listed(*, include_removed: bool = False) -> list[str]:
        page = register.images.list(include_removed=include_removed)
        return [image.reference for image in page.items]

    add_image(register, "debian")
    add_image(register, "debian", sha256="cd" * 32)
    raw.run("UPDATE images SET state = 'failed' WHERE revision = 2")
    add_image(register, "other")
    failed = listed()
    add_image(register, "debian", sha256="cd" * 32, opened=False)
    importing = listed()
    raw.run("UPDATE images SET state = 'ready' WHERE revision = 3")

    ready = listed()

    assert failed == ["debian:1", "debian:2", "other:1"]
    assert importing == ["debian:1", "debian:2", "debian:3", "other:1"]
    assert ready == ["debian:1", "debian:3", "other:1"]
    assert listed(include_removed=True) == importing
    assert register.images.get("debian:2").state == "failed"


def test_a_list_goes_on_after_its_cursor(register: Registry) -> None:
    for sha256 in ("aa" * 32, "bb" * 32, "cc" * 32):
        add_image(register, sha256=sha256)

    first = register.images.list(limit=2)
    rest = register.images.list(limit=2, cursor=first.next)

    assert [each.revision for each in (*first.items, *rest.items)] == [1, 2, 3]


def test_a_request_tells_its_image_and_keeps_the_revision_that_it_asked_for(
    register: Registry,
) -> None:
    a_cluster(register)
    add_image(register)

    request = add_request(register, image="debian")
    add_image(register, sha256="cd" * 32)

    assert register.requests.get(request.id).image == "debian:1"
    assert add_request(register).image is None


def test_a_type_whose_disk_or_memory_is_too_small_is_refused_with_both_numbers(
    register: Registry,
) -> None:
    a_cluster(register)
    add_vm_type(register, "tiny", memory_mib=1024, disk_gib=5)
    add_image(register, virtual_size_bytes=10 * GIB + 1)
    add_image(register, "heavy", virtual_size_bytes=GIB, min_memory_mib=2048)

    with pytest.raises(InvalidError, match=r"10\.01 GiB.*at most 5 GiB"):
        add_request(register, vm_type="tiny", image="debian")
    with pytest.raises(InvalidError, match=r"2048 MiB.*1024 MiB"):
        add_request(register, vm_type="tiny", image="heavy")
    with pytest.raises(NotFoundError, match="nonesuch"):
        add_request(register, vm_type="tiny", image="nonesuch")
    assert register.requests.list().items == ()


def test_a_build_waits_for_its_image_and_neither_worker_nor_host_is_held(
    register: Registry,
) -> None:
    [host] = a_cluster(register)
    image = add_image(register)
    assert disk_of(register) == (300, 0)

    [assignment_id] = place(register, add_request(register, image="debian"), host).assignment_ids

    assert disk_of(register) == (298, 15)
    [due] = register.assignments.send_due_tasks(resend_after_s=0)
    assert due.task == "workers.upload_image"
    assert register.assignments.claim_build(assignment_id, "w1", 60) is None
    assert register.assignments.state(assignment_id) == AssignmentState.RESERVED

    upload = bring(register)

    assert upload.image == image
    assert [each.task for each in register.assignments.send_due_tasks(resend_after_s=0)] == [
        "workers.create_vm"
    ]
    build = register.assignments.claim_build(assignment_id, "w1", 60)
    assert build is not None
    assert build.image is not None
    assert (build.image.reference, build.image.volume) == ("debian:1", upload.volume)
    assert (build.image.format, build.image.seed_kind) == ("qcow2", "none")
    [copy] = register.images.copies("debian")
    assert (copy.host, copy.state, copy.uploaded_bytes) == ("h1", CopyState.PRESENT, 2 * GIB)
    assert register.check() == []


def test_a_second_vm_of_an_image_finds_it_there(register: Registry) -> None:
    [host] = a_cluster(register)
    add_image(register)
    lease = take_lease(register)
    place(register, add_request(register, image="debian"), host, lease=lease)
    bring(register)

    [second] = place(
        register, add_request(register, image="debian"), host, lease=lease
    ).assignment_ids

    assert register.assignments.claim_build(second, "w1", 60) is not None
    assert disk_of(register) == (298, 30)


def test_an_image_on_one_host_lets_no_vm_be_built_on_another(register: Registry) -> None:
    h1, h2 = a_cluster(register, 2)
    add_image(register)
    lease = take_lease(register)
    place(register, add_request(register, image="debian"), h1, 1, lease)
    bring(register)
    second = add_request(register, image="debian")
    [there] = place(register, second, h2, 1, lease).assignment_ids

    assert "workers.create_vm" not in {
        each.task
        for each in register.assignments.send_due_tasks(resend_after_s=0)
        if each.id == there
    }
    assert register.assignments.claim_build(there, "w1", 60) is None

    bring(register)
    build = register.assignments.claim_build(there, "w1", 60)
    assert build is not None
    assert build.image is not None
    assert build.image.volume is not None


def test_a_report_counts_copies_beside_strangers(register: Registry) -> None:
    [host] = a_cluster(register)
    add_image(register)
    place(register, add_request(register, image="debian"), host)

    register.hosts.record_report(host.id, a_report())

    assert disk_of(register) == (298, 15)


def test_an_upload_whose_lease_ran_out_begins_anew_under_another_name(register: Registry) -> None:
    [host] = a_cluster(register)
    add_image(register)
    place(register, add_request(register, image="debian"), host)
    first = upload_of(register, lease_s=0)
    register.image_copies.record_volume(first.claim, first.volume)

    second = upload_of(register, "w2")

    assert second.volume != first.volume
    assert second.left_volume == first.volume
    with pytest.raises(ClaimLostError):
        register.image_copies.record_progress(first.claim, 1, 60)
    with pytest.raises(ClaimLostError):
        register.image_copies.finish_upload(first.claim)


def test_a_host_takes_one_upload_at_a_time(register: Registry) -> None:
    [host] = a_cluster(register)
    add_image(register)
    add_image(register, "other")
    lease = take_lease(register)
    place(register, add_request(register, image="debian"), host, lease=lease)
    upload = upload_of(register)
    place(register, add_request(register, image="other"), host, lease=lease)
    [due] = register.assignments.send_due_tasks(resend_after_s=0)

    assert register.image_copies.claim_upload(due.id, "w2", 60) is None
    register.image_copies.finish_upload(upload.claim)
    assert register.image_copies.claim_upload(due.id, "w2", 60) is not None


def test_an_image_that_a_host_refuses_gives_its_vms_back_and_does_not_hold_the_host(
    register: Registry, raw: RawSql
) -> None:
    [host] = a_cluster(register)
    add_image(register)
    request = add_request(register, image="debian")
    [assignment_id] = place(register, request, host).assignment_ids

    register.image_copies.fail_upload(upload_of(register).claim, "No space left on device")

    assert register.assignments.state(assignment_id) == AssignmentState.RELEASED
    [vm] = register.vms.list().items
    assert vm.last_error == (
        "image debian:1 could not be brought to host h1: No space left on device"
    )
    assert disk_of(register) == (300, 0)
    assert register.hosts.get("h1").backoff_until is None
    assert raw.value("SELECT count(*) FROM build_failures") == 1
    assert register.assignments.send_due_tasks(resend_after_s=0) == ()
    [copy] = register.images.copies("debian")
    assert (copy.state, copy.last_error) == (CopyState.FAILED, "No space left on device")
    assert register.check() == []


def test_a_stop_asked_of_a_vm_whose_image_does_not_come_is_over_with_its_place(
    register: Registry,
) -> None:
    [host] = a_cluster(register)
    add_image(register)
    request, lease = add_request(register, image="debian"), take_lease(register)
    place(register, request, host, lease=lease)
    [vm] = register.vms.list().items
    register.vms.change_power(vm.id, VmDesiredEvent.STOP, actor=ACTOR)

    register.image_copies.fail_upload(upload_of(register).claim, "No space left on device")

    assert register.vms.get(vm.id).power is None
    register.vms.change_power(vm.id, VmDesiredEvent.START, actor=ACTOR)
    place(register, request, host, lease=lease)
    assert register.vms.get(vm.id).power is None
    assert register.check() == []


def test_a_later_round_may_try_a_host_that_refused_again(register: Registry) -> None:
    [host] = a_cluster(register)
    add_image(register)
    request, lease = add_request(register, image="debian"), take_lease(register)
    place(register, request, host, lease=lease)
    register.image_copies.fail_upload(upload_of(register).claim, "No space left on device")

    place(register, request, host, lease=lease)

    assert disk_of(register) == (298, 15)
    assert bring(register).claim is not None


def test_what_passes_is_tried_again_but_not_for_ever(register: Registry) -> None:
    [host] = a_cluster(register)
    add_image(register)
    place(register, add_request(register, image="debian"), host)

    register.image_copies.retry_upload(upload_of(register).claim, None)
    for _ in range(4):
        register.image_copies.retry_upload(upload_of(register).claim, "no answer")
        [copy] = register.images.copies("debian")
        assert copy.state == CopyState.ABSENT
    register.image_copies.retry_upload(upload_of(register).claim, "no answer")

    [copy] = register.images.copies("debian")
    assert copy.state == CopyState.FAILED


def test_an_image_in_use_is_not_removed(register: Registry) -> None:
    [host] = a_cluster(register)
    add_image(register)
    request = add_request(register, image="debian")
    with pytest.raises(ConflictError, match="rest on it: 1, unfinished requests for it: 1"):
        register.images.remove("debian", actor=ACTOR)

    [assignment_id] = place(register, request, host).assignment_ids
    bring(register)
    run_vm(register, assignment_id)
    register.requests.delete(request.id, actor=ACTOR)
    with pytest.raises(ConflictError, match="rest on it: 1"):
        register.images.remove("debian", actor=ACTOR)
    remove_vm(register, assignment_id)

    assert register.images.remove("debian", actor=ACTOR).state == ImageState.REMOVED
    assert register.images.remove("debian:1", actor=ACTOR).state == ImageState.REMOVED
    with pytest.raises(NotFoundError):
        add_request(register, image="debian")


def test_a_removed_image_goes_from_its_hosts_and_gives_their_disk_back(register: Registry) -> None:
    [host] = a_cluster(register)
    add_image(register)
    request = add_request(register, image="debian")
    place(register, request, host)
    upload = bring(register)
    register.requests.delete(request.id, actor=ACTOR)
    register.images.remove("debian", actor=ACTOR)

    [due] = register.assignments.send_due_tasks(resend_after_s=0)
    assert due.task == "workers.remove_image"
    assert register.image_copies.claim_upload(due.id, "w1", 60) is None
    removal = register.image_copies.claim_removal(due.id, "w1", 60)
    assert removal is not None
    assert removal.volume == upload.volume
    assert disk_of(register) == (298, 0)
    register.image_copies.finish_removal(removal.claim)

    assert disk_of(register) == (300, 0)
    assert register.image_copies.claim_removal(due.id, "w1", 60) is None
    assert add_image(register).reference == "debian:2"


def test_whoever_uploads_an_image_that_is_removed_loses_its_claim(register: Registry) -> None:
    [host] = a_cluster(register)
    add_image(register)
    request = add_request(register, image="debian")
    place(register, request, host)
    upload = upload_of(register)
    register.requests.delete(request.id, actor=ACTOR)

    register.images.remove("debian", actor=ACTOR)

    for call in (
        lambda: register.image_copies.record_volume(upload.claim, upload.volume),
        lambda: register.image_copies.finish_upload(upload.claim),
        lambda: register.image_copies.fail_upload(upload.claim, "too late"),
    ):
        with pytest.raises(ClaimLostError):
            call()


def test_a_copy_that_the_host_lost_is_brought_again(register: Registry) -> None:
    [host] = a_cluster(register)
    add_image(register)
    place(register, add_request(register, image="debian"), host)
    upload = bring(register)

    register.hosts.record_report(host.id, a_report(volumes=(upload.volume,)))
    assert register.images.copies("debian")[0].state == CopyState.PRESENT
    register.hosts.record_report(host.id, a_report())

    assert register.images.copies("debian")[0].state == CopyState.ABSENT
    again = upload_of(register)
    assert again.volume != upload.volume
    assert again.left_volume is None


def test_vms_are_not_placed_where_their_image_does_not_fit_beside_them(register: Registry) -> None:
    add_vm_type(register)
    add_tenant(register)
    add_image(register)
    full = add_host(register, "h1", disk_gib=16)
    request = add_request(register, image="debian")

    committed = place(register, request, full)

    assert [part.count for part in committed.dropped] == [1]
    assert committed.assignment_ids == ()
    assert disk_of(register) == (16, 0)
    waiting = register.requests.get(request.id).waiting
    assert waiting is not None
    assert waiting.reason == "no_room_for_image"
    assert register.images.copies("debian") == ()


def test_every_step_leaves_an_event(register: Registry) -> None:
    [host] = a_cluster(register)
    image = add_image(register)
    place(register, add_request(register, image="debian"), host)
    bring(register)

    seen = [
        (each.kind, each.from_state, each.to_state, each.data.get("host"))
        for each in register.events.list(subject_id=str(image.id))
    ]

    assert seen == [
        ("image_added", None, "ready", None),
        ("image_copy_state", None, "absent", host.name),
        ("image_copy_state", "absent", "uploading", host.name),
        ("image_copy_state", "uploading", "present", host.name),
    ]


@pytest.mark.parametrize("first_asks", [True, False])
def test_of_a_request_and_a_removal_at_once_one_wins(
    register: Registry, other: Registry, first_asks: bool
) -> None:
    a_cluster(register)
    add_image(register)

    def ask(registry: Registry) -> object:
        return add_request(registry, image="debian")

    def remove(registry: Registry) -> object:
        return registry.images.remove("debian", actor=ACTOR)

    one, two = (ask, remove) if first_asks else (remove, ask)
    with held_before_its_end(register) as start:
        first = start(lambda: one(register))
        second = outcome(lambda: two(other))

    assert first.exception() is None
    assert isinstance(second, ConflictError if first_asks else NotFoundError)
    requested = register.requests.list().items
    assert len(requested) == (1 if first_asks else 0)


def test_a_vm_tells_how_much_of_its_image_has_come(register: Registry) -> None:
    [host] = a_cluster(register)
    add_image(register)
    place(register, add_request(register, image="debian"), host)

    def waits() -> tuple[CopyState, int] | None:
        [vm] = register.vms.list().items
        image = vm.waits_for_image
        return None if image is None else (image.state, image.uploaded_bytes)

    assert waits() == (CopyState.ABSENT, 0)
    upload = upload_of(register)
    register.image_copies.record_volume(upload.claim, upload.volume)
    register.image_copies.record_progress(upload.claim, GIB, 60)
    assert waits() == (CopyState.UPLOADING, GIB)
    register.image_copies.finish_upload(upload.claim)
    assert waits() is None
