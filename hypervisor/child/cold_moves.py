"""Move a VM that is off: its disk streams through this process. In the child process only.

The overlay is copied byte by byte; only the path of its backing file in the header becomes the
destination's. libvirt's streams carry holes as holes, so holes are not sent.
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import libvirt

from hypervisor import qcow2
from hypervisor.child import backing_files, disks, filters, shared_pools, snapshots
from hypervisor.child.domains import attachments
from hypervisor.child.move_hosts import MoveHosts
from hypervisor.errors import OperationFailedError
from hypervisor.move_model import MigrationProgress, MoveResult, MoveSpec
from hypervisor.xml import domain as domain_xml
from hypervisor.xml import migration_target

_OPERATION: Final = "cold_move"
_PIECE_BYTES: Final = 1 << 18  #: the largest piece of libvirt's protocol
_REPORT_EVERY_S: Final = 0.5
#: libvirt writes in a thread of its own, and a busy host may take a moment.
_READS: Final = 3
_PAUSE_S: Final = 1.0
_HOLE: Final = -3  #: the answer of a sparse stream where a hole begins
_DEFINED: Final = libvirt.VIR_DOMAIN_XML_INACTIVE | libvirt.VIR_DOMAIN_XML_SECURE
_ZEROS: Final = bytes(_PIECE_BYTES)


def move_stopped_vm(
    hosts: MoveHosts,
    spec: MoveSpec,
    stop: threading.Event,
    on_progress: Callable[[MigrationProgress], object],
) -> MoveResult:
    """Copy a stopped VM's disk to the destination and define its domain there.

    The source stays unchanged.

    Raises libvirtError or OperationFailedError. The caller may repeat the move until the domain is
    defined.
    """
    started = time.monotonic()
    domain = hosts.source.for_move.lookupByUUIDString(spec.vm_id)
    _check_domain_off(domain)
    _refuse_existing_domain(hosts, spec)
    sent = 0
    attachments.refuse_attached_disks(domain)
    snapshots.refuse_snapshots(domain)
    if spec.copy_disk:
        disk = disks.root_volume(hosts.source.for_move, domain)
        base = backing_files.backing_path_at_destination(hosts, spec, disk)
        sent = _DiskCopy(hosts, spec, stop, on_progress, base).run(disk)
    else:
        shared_pools.check_pool_shared(hosts, spec, domain)
    _check_domain_off(domain)
    attachments.refuse_attached_disks(domain)  # since the copy began
    _define_at_destination(hosts, spec, domain)
    return MoveResult(
        total_ms=round(1000 * (time.monotonic() - started)),
        downtime_ms=None,
        memory_bytes=0,
        disk_bytes=sent,
    )


@dataclass(slots=True)
class _CopiedDiskDigest:
    """The SHA-256 and the size of a file's content; holes count as zeros."""

    sha256: Any = field(default_factory=hashlib.sha256)
    size_bytes: int = 0

    def add_bytes(self, piece: bytes) -> None:
        """Add a piece of the disk's content to the digest."""
        self.sha256.update(piece)
        self.size_bytes += len(piece)

    def add_hole(self, length: int) -> None:
        """Add a hole of the disk to the digest, as zeros."""
        self.size_bytes += length
        while length > 0:
            self.sha256.update(_ZEROS[: min(length, len(_ZEROS))])
            length -= len(_ZEROS)


class _DiskCopy:
    """Copies a disk from the source to the destination."""

    def __init__(
        self,
        hosts: MoveHosts,
        spec: MoveSpec,
        stop: threading.Event,
        on_progress: Callable[[MigrationProgress], object],
        base: str | None = None,
    ) -> None:
        self._hosts = hosts
        self._base = base  #: the path at the destination
        self._spec = spec
        self._stop = stop
        self._on_progress = on_progress
        self._started = time.monotonic()
        self._reported_at = 0.0
        self._sent = 0  #: bytes that are not holes

    def run(self, here: libvirt.virStorageVol) -> int:
        """Copy a disk's file and verify it by reading it back; return the bytes sent.

        Raises OperationFailedError if the source's file was modified in between: the guest may have
        run during the copy and be off again.
        """
        written_at = disks.last_written_at(here)
        store = self._hosts.destination.for_move.storagePoolLookupByName(self._spec.pool)
        size = here.infoFlags(libvirt.VIR_STORAGE_VOL_GET_PHYSICAL)[2]
        # A new file: in an existing one, holes would keep the old content.
        disks.delete_volume(store, self._spec.volume)
        there = store.createXML(domain_xml.raw_volume_xml(self._spec.volume, size, sparse=True), 0)
        self._report_progress(size, 0, now=True)
        expected = self._send_disk(here, there, size)
        self._verify_copy(there, size, expected)
        if disks.last_written_at(here) != written_at:
            raise OperationFailedError(
                _OPERATION, "the source's disk was written to while it was copied"
            )
        store.refresh(0)  # so that libvirt reads the overlay's header
        return self._sent

    def _send_disk(
        self, here: libvirt.virStorageVol, there: libvirt.virStorageVol, size: int
    ) -> Any:
        """Stream a disk's file from the source to the destination; return its digest."""
        digest = _CopiedDiskDigest()
        with (
            _open_stream(self._hosts.source.for_move) as down,
            _open_stream(self._hosts.destination.for_move) as up,
        ):
            here.download(down, 0, size, libvirt.VIR_STORAGE_VOL_DOWNLOAD_SPARSE_STREAM)
            there.upload(up, 0, size, libvirt.VIR_STORAGE_VOL_UPLOAD_SPARSE_STREAM)
            pieces = _stream_pieces(down)
            for piece in (
                pieces if self._base is None else _replace_backing_path(pieces, self._base)
            ):
                self._check_not_stopped()
                if isinstance(piece, int):
                    digest.add_hole(piece)
                    up.sendHole(piece)
                else:
                    digest.add_bytes(piece)
                    unsent = memoryview(piece)
                    while unsent:
                        unsent = unsent[up.send(bytes(unsent)) :]
                    self._sent += len(piece)
                    self._limit_bandwidth()
                self._report_progress(size, digest.size_bytes)
            down.finish()
            up.finish()
        if digest.size_bytes != size:
            raise OperationFailedError(
                _OPERATION, f"the source's disk is {size} bytes, and {digest.size_bytes} came"
            )
        self._report_progress(size, size, now=True)
        return digest.sha256.digest()

    def _verify_copy(self, there: libvirt.virStorageVol, size: int, expected: Any) -> None:
        """Read the copy back and compare digests; raise if they differ several times."""
        for attempt in range(_READS):
            if attempt:
                time.sleep(_PAUSE_S)
            digest = _CopiedDiskDigest()
            with _open_stream(self._hosts.destination.for_move) as back:
                there.download(back, 0, size, libvirt.VIR_STORAGE_VOL_DOWNLOAD_SPARSE_STREAM)
                for piece in _stream_pieces(back):
                    self._check_not_stopped()
                    if isinstance(piece, int):
                        digest.add_hole(piece)
                    else:
                        digest.add_bytes(piece)
                    self._report_progress(size, size)
                back.finish()
            if digest.size_bytes == size and digest.sha256.digest() == expected:
                return
        raise OperationFailedError(
            _OPERATION, f"the destination's {self._spec.volume} differs from the source's disk"
        )

    def _check_not_stopped(self) -> None:
        """Raise `OperationFailedError` if the copy of the disk is to be aborted."""
        if self._stop.is_set():
            raise OperationFailedError(_OPERATION, "it was called off")

    def _limit_bandwidth(self) -> None:
        """Wait if more of the disk was sent than the bandwidth allows."""
        if self._spec.bandwidth_mib_s is None:
            return
        due_s = self._sent / (self._spec.bandwidth_mib_s << 20)
        self._stop.wait(max(0.0, self._started + due_s - time.monotonic()))

    def _report_progress(self, size: int, done: int, *, now: bool = False) -> None:
        """Report the progress of a disk's copy, at most once in an interval unless ``now``."""
        elapsed_s = time.monotonic() - self._started
        if not now and elapsed_s < self._reported_at + _REPORT_EVERY_S:
            return
        self._reported_at = elapsed_s
        self._on_progress(
            MigrationProgress(
                elapsed_ms=round(1000 * elapsed_s),
                memory_total_bytes=0,
                memory_remaining_bytes=0,
                disk_total_bytes=size,
                disk_remaining_bytes=size - done,
                rate_bytes_s=round(self._sent / elapsed_s) if elapsed_s > 0 else 0,
                iteration=0,
            )
        )


@contextlib.contextmanager
def _open_stream(conn: libvirt.virConnect) -> Iterator[libvirt.virStream]:
    """Lend a stream for a volume's content; abort it if the block fails."""
    stream = conn.newStream(0)
    try:
        yield stream
    except BaseException:
        with contextlib.suppress(libvirt.libvirtError):
            stream.abort()
        raise


def _stream_pieces(stream: libvirt.virStream) -> Iterator[bytes | int]:
    """Yield the pieces of a sparse stream: bytes, or the length of a hole."""
    while True:
        piece = stream.recvFlags(_PIECE_BYTES, libvirt.VIR_STREAM_RECV_STOP_AT_HOLE)
        if piece == _HOLE:
            yield int(stream.recvHole())
        elif piece:
            yield piece
        else:
            return


def _replace_backing_path(pieces: Iterator[bytes | int], base: str) -> Iterator[bytes | int]:
    """Yield the pieces of an overlay, with the backing path in its header replaced."""
    head, hole = b"", 0
    try:
        while (missing := _missing_bytes(head)) > 0:
            piece = hole or next(pieces, b"")
            if not piece:
                break
            if isinstance(piece, int):
                filled = min(piece, missing)
                head, hole = head + bytes(filled), piece - filled
            else:
                head += piece
        end = qcow2.cluster_bytes(head)
        head = qcow2.replace_backing_path(head[:end], base) + head[end:]
    except ValueError as error:
        raise OperationFailedError(_OPERATION, f"the source's disk: {error}") from error
    yield head
    if hole:
        yield hole
    yield from pieces


def _missing_bytes(head: bytes) -> int:
    """Return a lower bound on the bytes missing from the first cluster."""
    known = len(head) >= qcow2.HEADER_BYTES
    return (qcow2.cluster_bytes(head) if known else qcow2.HEADER_BYTES) - len(head)


def _check_domain_off(domain: libvirt.virDomain) -> None:
    """Raise `OperationFailedError` if the domain to move is running."""
    if domain.isActive():
        raise OperationFailedError(
            _OPERATION, "domain is running", libvirt.VIR_ERR_OPERATION_INVALID
        )


def _refuse_existing_domain(hosts: MoveHosts, spec: MoveSpec) -> None:
    """Raise if the destination already has a domain of this VM.

    A worker removes the remains of earlier attempts before it begins. So a domain of this move
    belongs to another worker that took the move over: its disk has arrived and must stay.
    """
    try:
        hosts.destination.for_move.lookupByUUIDString(spec.vm_id)
    except libvirt.libvirtError as error:
        if error.get_error_code() == libvirt.VIR_ERR_NO_DOMAIN:
            return
        raise
    raise OperationFailedError(
        _OPERATION,
        f"the destination has domain {spec.vm_id} already",
        libvirt.VIR_ERR_OPERATION_FAILED,
    )


def _define_at_destination(hosts: MoveHosts, spec: MoveSpec, domain: libvirt.virDomain) -> None:
    """Define the domain of a stopped VM, with its filters, at the destination of its move."""
    conn = hosts.destination.for_move
    files = disks.files_in_pool(conn, spec.pool, spec.volume, spec.seed_volume)
    xml = migration_target.destination_xml(domain.XMLDesc(_DEFINED), spec, files, shares=True)
    filters.define_filter(conn, domain_xml.parse_tree(xml), spec.guard)
    conn.defineXML(xml)
