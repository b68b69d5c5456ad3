"""Bringing a file to a host: the fake, libvirt's test driver, and real QEMU hosts."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from hypervisor import HostConnection, HostUnreachableError, OperationFailedError
from hypervisor.connection import _PIECE_BYTES
from tests.contract.conftest import DEADLINE_S, Ground
from tests.servers.lab_hosts import LabCluster
from tests.servers.running import eventually

NAME = "fuga-image-test.1.qcow2"
SIZE_BYTES = 5 * _PIECE_BYTES // 2


class StopError(Exception):
    """What a teller may raise."""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "image"
    path.write_bytes(os.urandom(SIZE_BYTES))
    return path


@pytest.fixture
def place(ground: Ground) -> Iterator[Ground]:
    """A host of each kind, without the volume afterwards."""
    yield ground
    ground.host.delete_volume(ground.pool, NAME)


@pytest.fixture
def lab(lab_cluster: Callable[[int], LabCluster]) -> LabCluster:
    return lab_cluster(1)


@pytest.fixture
def real(lab: LabCluster) -> Iterator[Ground]:
    """A host that keeps what it is sent."""
    host = lab.hosts[0]
    with HostConnection(host.uri, deadline_s=DEADLINE_S) as connection:
        made = Ground("qemu", connection, host.domain_type, host.pool, host.base_volume)
        yield made
        made.empty()
        connection.delete_volume(host.pool, NAME)


def upload(ground: Ground, file: Path, **changes: object) -> list[int]:
    shown: list[int] = []
    arguments = {
        "pool": ground.pool,
        "name": NAME,
        "path": str(file),
        "size_bytes": file.stat().st_size,
        "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
        "on_progress": shown.append,
    }
    ground.host.upload(**(arguments | changes))  # type: ignore[arg-type]
    return shown


def test_a_file_is_brought_whole_and_every_piece_is_told(place: Ground, file: Path) -> None:
    shown = upload(place, file)

    assert shown[-1] == SIZE_BYTES
    assert shown == sorted(shown)
    assert len(set(shown)) > 2
    assert NAME in place.volumes()


def test_a_file_that_is_not_what_it_was_leaves_no_volume(place: Ground, file: Path) -> None:
    with pytest.raises(OperationFailedError, match="SHA-256"):
        upload(place, file, sha256="0" * 64)

    assert NAME not in place.volumes()


def test_a_file_that_is_not_there_leaves_no_volume(place: Ground, file: Path) -> None:
    with pytest.raises(OperationFailedError, match="cannot be read"):
        upload(place, file, path=str(file.with_name("other")))

    assert NAME not in place.volumes()


def test_an_upload_that_is_stopped_leaves_no_volume_and_the_host_goes_on(
    place: Ground, file: Path
) -> None:
    def stop(sent: int) -> None:
        raise StopError

    with pytest.raises(StopError):
        upload(place, file, on_progress=stop)

    assert NAME not in place.volumes()
    assert upload(place, file)[-1] == SIZE_BYTES


def test_an_unknown_pool_is_refused(place: Ground, file: Path) -> None:
    with pytest.raises(OperationFailedError, match="no-such-pool"):
        upload(place, file, pool="no-such-pool")


@pytest.mark.qemu
def test_a_real_host_has_the_very_bytes(lab: LabCluster, real: Ground, file: Path) -> None:
    upload(real, file)

    assert (images_of(lab) / NAME).read_bytes() == file.read_bytes()


@pytest.mark.qemu
def test_zeros_take_no_place_on_a_real_host(lab: LabCluster, real: Ground, file: Path) -> None:
    with file.open("r+b") as sparse:
        sparse.truncate(64 << 20)  # ends in a hole
        sparse.seek(32 << 20)
        sparse.write(bytes(100_000) + b"in between" + bytes(100_000))

    upload(real, file)

    brought = images_of(lab) / NAME
    assert brought.stat().st_blocks * 512 < SIZE_BYTES + (1 << 20)
    assert brought.read_bytes() == file.read_bytes()


@pytest.mark.qemu
def test_a_pool_keeps_its_margin(lab: LabCluster, real: Ground, file: Path) -> None:
    with pytest.raises(OperationFailedError, match=r"GiB left: the image needs.*MARGIN_GIB"):
        upload(real, file, margin_bytes=1 << 60)

    assert NAME not in real.volumes()


@pytest.mark.qemu
def test_a_guest_boots_from_what_was_brought(lab: LabCluster, real: Ground) -> None:
    upload(real, images_of(lab) / "base.qcow2")
    spec = real.spec()

    real.host.create_overlay(
        pool=real.pool, name=spec.volume, base_volume=NAME, base_format="qcow2", capacity_gib=5
    )
    real.host.define(spec)
    real.host.start_paused(spec.mark.vm_id)
    real.host.resume(spec.mark.vm_id)

    ready = f"LAB-GUEST-READY uuid={spec.mark.vm_id}".encode()
    eventually(lambda: ready in real.host.console_tail(spec.mark.vm_id).content)


@pytest.mark.qemu
def test_a_libvirtd_that_hangs_ends_an_upload_at_the_deadline_of_a_piece(
    lab: LabCluster, real: Ground, file: Path
) -> None:
    with ExitStack() as until_it_answers:

        def hang(_sent: int) -> None:
            until_it_answers.enter_context(lab.faulty(1, "hang-daemon", until="resume-daemon"))

        with pytest.raises(HostUnreachableError, match="no answer within"):
            upload(real, file, on_progress=hang, deadline_s=5.0)

    # What was left half is known by its name, and is no volume that anybody uses.
    real.host.delete_volume(real.pool, NAME)
    assert upload(real, file)[-1] == SIZE_BYTES


def images_of(lab: LabCluster) -> Path:
    images = lab.hosts[0].images_dir
    assert images is not None
    return images


@pytest.mark.qemu
def test_what_was_judged_is_sent_though_the_file_begins_otherwise_by_now(
    lab: LabCluster, real: Ground, file: Path
) -> None:
    good = file.read_bytes()
    file.write_bytes(b"OOOM\0\0\0\2/a-fifo".ljust(65536, b"\0") + good[65536:])

    upload(real, file, head=good[:65536], sha256=hashlib.sha256(good).hexdigest())

    assert (images_of(lab) / NAME).read_bytes() == good
