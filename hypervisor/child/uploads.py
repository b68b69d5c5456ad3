"""Bring a file into a host's pool, piece by piece. Runs in the child process only.

The parent requests one piece after the other. Each piece has its own deadline, which distinguishes
a slow host from a hung one.

Zeros are sent as holes, so a volume takes no more space than its content needs.

A stream that ended without error does not prove that the bytes are in the volume: libvirt writes
them in a thread, and may not report a failure. So they are read back.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final

import libvirt

from hypervisor.errors import HostUnreachableError, OperationFailedError
from hypervisor.xml import domain as domain_xml

#: The largest piece of libvirt's protocol; libvirt would split larger ones.
_SEND_BYTES: Final = 1 << 18
#: Length of a run of zeros that becomes a hole.
_HOLE_BYTES: Final = 1 << 16
_ZEROS: Final = bytes(_HOLE_BYTES)
_GIB: Final = 1 << 30
#: Attempts to read the volume back, and the pause between them: a busy host may need a moment.
_READS: Final = 3
_PAUSE_S: Final = 1.0


@dataclass(slots=True)
class _Upload:
    """An upload under way: the file, the new volume, and the streams into and out of it."""

    conn: libvirt.virConnect
    pool: str
    volume: libvirt.virStorageVol
    stream: libvirt.virStream | None  #: None for the test driver, which keeps no content
    file: BinaryIO
    size_bytes: int
    head: bytes  #: sent in place of the file's current beginning
    sent: int = 0
    hole: int = 0  #: zeros not sent yet
    digest: Any = field(default_factory=hashlib.sha256)
    back: libvirt.virStream | None = None  #: the stream that reads the volume back
    came_back: int = 0
    digest_back: Any = None
    reads_left: int = _READS


class Uploads:
    """The upload to one host; at most one at a time."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._current: _Upload | None = None

    def begin(
        self,
        conn: libvirt.virConnect,
        *,
        pool: str,
        name: str,
        path: str,
        size_bytes: int,
        head: str,
        margin_bytes: int = 0,
    ) -> None:
        """Create an empty volume of the uploaded file's size, and open a stream into it.

        Raises if the pool has less room than the content and the margin need.
        """
        self.close()
        store = conn.storagePoolLookupByName(pool)
        if conn.getType() != "TEST":  # the test driver's pool sizes are made up
            _check_free_space(store, path, size_bytes, margin_bytes)
        try:
            file = Path(path).open("rb")  # noqa: SIM115 - until the upload ends
        except OSError as error:
            raise OperationFailedError("upload", f"{path} cannot be read: {error}") from error
        try:
            first = base64.b64decode(head)
            file.seek(len(first))
            # Raw, so that the bytes are stored unchanged.
            volume = store.createXML(domain_xml.raw_volume_xml(name, size_bytes, sparse=True), 0)
            # Volumes of the test driver have no content.
            stream = None if conn.getType() == "TEST" else conn.newStream(0)
            if stream is not None:
                sparse = libvirt.VIR_STORAGE_VOL_UPLOAD_SPARSE_STREAM
                volume.upload(stream, 0, size_bytes, sparse)
        except BaseException:
            file.close()
            raise
        self._current = _Upload(conn, pool, volume, stream, file, size_bytes, first)

    def send(self, conn: libvirt.virConnect, *, max_bytes: int) -> int:
        """Send the next piece of an upload; return the bytes sent so far."""
        upload = self._current_upload(conn)
        left = min(max_bytes, upload.size_bytes - upload.sent)
        while left > 0:
            piece = self._read_piece(upload, min(_SEND_BYTES, left))
            upload.digest.update(piece)
            self._send_piece(upload, piece)
            upload.sent += len(piece)
            left -= len(piece)
        self._send_hole(upload)
        return upload.sent

    def end(self, conn: libvirt.virConnect, *, sha256: str) -> None:
        """Finish an upload's stream, so that the host writes all; raise if the digest differs."""
        upload = self._current_upload(conn)
        found = upload.digest.hexdigest()
        if found != sha256:
            raise OperationFailedError(
                "upload", f"the SHA-256 of {upload.file.name} is {found}, no longer {sha256}"
            )
        if upload.stream is not None:
            upload.stream.finish()
            upload.stream = None
            upload.digest_back = hashlib.sha256()

    def read_back(self, conn: libvirt.virConnect, *, max_bytes: int) -> int:
        """Read the next piece of an uploaded volume back; return the bytes read so far.

        The upload is over when all bytes are read back and the digest matches.
        """
        upload = self._current_upload(conn)
        if upload.digest_back is None:  # the test driver keeps no content
            self.close()
            return upload.size_bytes
        if upload.back is None:
            upload.back = conn.newStream(0)
            upload.volume.download(upload.back, 0, upload.size_bytes, 0)
        left = min(max_bytes, upload.size_bytes - upload.came_back)
        while left > 0 and (piece := upload.back.recv(min(_SEND_BYTES, left))):
            upload.digest_back.update(piece)
            upload.came_back += len(piece)
            left -= len(piece)
        if left == 0 and upload.came_back < upload.size_bytes:
            return upload.came_back
        return self._compare_digests(conn, upload)

    def _compare_digests(self, conn: libvirt.virConnect, upload: _Upload) -> int:
        """Compare an upload's digests; return the bytes read back, or 0 to read it again."""
        assert upload.back is not None  # noqa: S101 - it was just read from
        upload.back.finish()
        upload.back = None
        if upload.digest_back.digest() == upload.digest.digest():
            self.close()
            with contextlib.suppress(libvirt.libvirtError):  # busy: the refresh may come later
                conn.storagePoolLookupByName(upload.pool).refresh(0)
            return upload.size_bytes
        upload.reads_left -= 1
        if not upload.reads_left:
            raise OperationFailedError(
                "upload", f"the host's {upload.volume.name()} differs from the uploaded bytes"
            )
        time.sleep(_PAUSE_S)
        upload.came_back, upload.digest_back = 0, hashlib.sha256()
        return 0

    def drop(self, conn: libvirt.virConnect) -> None:
        """Abort the upload, if there is one, and delete its volume."""
        upload, same = self._current, self._current is not None and self._current.conn is conn
        name = upload.volume.name() if upload is not None else None
        self.close()
        if upload is not None and same:
            store = conn.storagePoolLookupByName(upload.pool)
            with contextlib.suppress(libvirt.libvirtError):
                store.refresh(0)
            try:
                store.storageVolLookupByName(name).delete(0)
            except libvirt.libvirtError as error:
                if error.get_error_code() != libvirt.VIR_ERR_NO_STORAGE_VOL:
                    raise

    def close(self) -> None:
        """Close the upload's file and streams; its volume stays."""
        upload, self._current = self._current, None
        if upload is not None:
            upload.file.close()
            for stream in (upload.stream, upload.back):
                if stream is not None:
                    with contextlib.suppress(libvirt.libvirtError):
                        stream.abort()

    def _current_upload(self, conn: libvirt.virConnect) -> _Upload:
        """Return the upload under way, or raise if its connection was lost."""
        if self._current is None or self._current.conn is not conn:
            raise HostUnreachableError(self._uri, "the connection of the upload was lost")
        return self._current

    @staticmethod
    def _read_piece(upload: _Upload, length: int) -> bytes:
        """Return the next piece of the file to upload; its checked head comes first."""
        if upload.head:
            piece, upload.head = upload.head[:length], upload.head[length:]
            return piece
        try:
            piece = upload.file.read(length)
        except OSError as error:
            raise OperationFailedError(
                "upload", f"{upload.file.name} cannot be read: {error}"
            ) from error
        if len(piece) < length:
            raise OperationFailedError(
                "upload",
                f"{upload.file.name} has ended after {upload.sent + len(piece)}"
                f" of {upload.size_bytes} bytes",
            )
        return piece

    def _send_piece(self, upload: _Upload, piece: bytes) -> None:
        """Send a piece of an upload; parts of zeros become holes."""
        if upload.stream is None:
            return
        view = memoryview(piece)
        for start in range(0, len(view), _HOLE_BYTES):
            part = view[start : start + _HOLE_BYTES]
            if part == _ZEROS[: len(part)]:
                upload.hole += len(part)
                continue
            self._send_hole(upload)
            while part:
                part = part[upload.stream.send(bytes(part)) :]

    @staticmethod
    def _send_hole(upload: _Upload) -> None:
        """Send the hole before the next bytes of an upload, if any."""
        if upload.hole and upload.stream is not None:
            upload.stream.sendHole(upload.hole, 0)
        upload.hole = 0


def _check_free_space(
    store: libvirt.virStoragePool, path: str, size_bytes: int, margin_bytes: int
) -> None:
    """Raise if an upload would leave a pool less free space than the margin."""
    with contextlib.suppress(libvirt.libvirtError):  # busy: its last refresh is recent
        store.refresh(0)
    free_bytes = store.info()[3]
    with contextlib.suppress(OSError):  # opening it later raises the error
        size_bytes = min(size_bytes, Path(path).stat().st_blocks * 512)
    if free_bytes - size_bytes < margin_bytes:
        raise OperationFailedError(
            "upload",
            f"pool {store.name()} has {free_bytes / _GIB:.1f} GiB left: the image needs"
            f" {size_bytes / _GIB:.1f} GiB, and images leave {margin_bytes / _GIB:.1f} GiB free"
            " (FUGA_IMAGE_MARGIN_GIB); free space there, or give the host a larger pool",
        )
