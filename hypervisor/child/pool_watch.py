"""Polls a host's storage pool so that a hung pool blocks nothing else. In the child process only.

A call to a pool with hung storage blocks for ever, and with it one of the few threads of the host's
libvirtd. So there is one query at a time. The answer to a hung query shows that the pool is back.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import libvirt

from hypervisor.child.background_calls import BackgroundCall
from hypervisor.child.idle_connections import IdleConnections
from hypervisor.errors import OperationFailedError
from hypervisor.model import MAX_NAME, HostVolume
from hypervisor.xml import domain as domain_xml
from plain_text import shorten_text

#: A pool of earlier releases over the console logs, whose content nothing may parse.
_LOG_POOL: Final = "fuga-serial-logs"


#: A disk's place: the pool's name and the volume's, or None and its path.
Place = tuple[str | None, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenPool:
    """A pool that answered."""

    capacity_bytes: int
    used_bytes: int
    folder: str | None  #: the folder of its volumes
    volumes: tuple[HostVolume, ...]

    def sizes(self, name: str) -> dict[Place, int]:
        """Return the virtual sizes of the pool's volumes in bytes, by pool name and by path."""
        return {
            place: volume.capacity_bytes
            for volume in self.volumes
            for place in ((name, volume.name), (None, f"{self.folder}/{volume.name}"))
        }


@dataclass(frozen=True, slots=True)
class SilentPool:
    """A pool that has not answered a query for a while."""

    since_s: float


class PoolWatch:
    """Polls one host's pool, one query at a time."""

    def __init__(self, connections: IdleConnections) -> None:
        self._connections = connections
        self._question: BackgroundCall[SeenPool] | None = None
        self._queried_at = 0.0
        self._silent_from: float | None = None
        self._was_busy = False  #: whether the earlier query was open when this poll began

    def start_query(self, pool: str) -> None:
        """Start a query of the pool, unless an earlier one is still open."""
        self._was_busy = self._question is not None and self._question.is_alive()
        if not self._was_busy:
            # The late answer of an open query is older than the poll that would report it.
            self._queried_at = time.monotonic()
            self._question = BackgroundCall(self._connections, lambda conn: _read_pool(conn, pool))

    def await_state(self, *, by: float) -> SeenPool | SilentPool:
        """Return the pool's state, or `SilentPool` if the query is late; raise its error.

        A pool that always answers late is silent since its first late query.
        """
        assert self._question is not None  # noqa: S101 - `start_query` comes first
        if self._was_busy or self._question.is_running_after(max(0.0, by - time.monotonic())):
            if self._silent_from is None:
                self._silent_from = self._queried_at
            return SilentPool(time.monotonic() - self._silent_from)
        self._silent_from = None
        return self._question.result()


class OtherVolumes:
    """Sizes of disks outside the host's pool. Their pools may hang as well."""

    def __init__(self, connections: IdleConnections) -> None:
        self._connections = connections
        self._question: BackgroundCall[dict[Place, int]] | None = None
        self._known: dict[Place, int] = {}

    def sizes(self, places: Sequence[Place], *, by: float) -> Mapping[Place, int]:
        """Return volumes' virtual sizes in bytes; those of an earlier poll if the query is late."""
        self._known = {place: self._known[place] for place in places if place in self._known}
        if not places:
            return {}
        if self._question is None or not self._question.is_alive():
            self._question = BackgroundCall(
                self._connections, lambda conn: _virtual_sizes(conn, places)
            )
            if not self._question.is_running_after(max(0.0, by - time.monotonic())):
                with contextlib.suppress(libvirt.libvirtError):
                    self._known = self._question.result()
        return self._known


def _read_pool(conn: libvirt.virConnect, pool: str) -> SeenPool:
    """Return a pool's state. Raises libvirtError, or OperationFailedError if it is not active."""
    _remove_log_pool(conn)
    store = conn.storagePoolLookupByName(pool)
    with contextlib.suppress(libvirt.libvirtError):  # a volume is being made: keep the old listing
        store.refresh(0)
    if not store.isActive():
        raise OperationFailedError("report", f"pool {pool} is not active")
    _, capacity, used, _ = store.info()
    return SeenPool(
        capacity_bytes=capacity,
        used_bytes=used,
        folder=domain_xml.pool_path(store.XMLDesc(0)),
        volumes=_list_volumes(store),
    )


def _remove_log_pool(conn: libvirt.virConnect) -> None:
    """Remove the pool of console logs that earlier releases made; delete no file."""
    with contextlib.suppress(libvirt.libvirtError):  # usually there is none
        store = conn.storagePoolLookupByName(_LOG_POOL)
        if domain_xml.pool_path(store.XMLDesc(0)) == domain_xml.SERIAL_LOG_DIR:
            store.destroy()


def _list_volumes(store: libvirt.virStoragePool) -> tuple[HostVolume, ...]:
    """Return the volumes of a storage pool with their sizes."""
    found = []
    for volume in store.listAllVolumes(0):
        try:
            _, capacity, allocation = volume.info()
        except libvirt.libvirtError as error:
            if error.get_error_code() != libvirt.VIR_ERR_NO_STORAGE_VOL:
                raise
            continue  # it vanished after it was listed
        found.append(
            HostVolume(
                name=shorten_text(volume.name(), MAX_NAME),
                capacity_bytes=capacity,
                allocation_bytes=allocation,
            )
        )
    return tuple(sorted(found, key=lambda volume: volume.name))


def _virtual_sizes(conn: libvirt.virConnect, places: Sequence[Place]) -> dict[Place, int]:
    """Return the virtual sizes in bytes of volumes in any pool; missing ones are left out."""
    found = {}
    for pool, name in places:
        with contextlib.suppress(libvirt.libvirtError):  # no such pool or volume any more
            if pool is None:
                volume = conn.storageVolLookupByPath(name)
            else:
                volume = conn.storagePoolLookupByName(pool).storageVolLookupByName(name)
            found[pool, name] = int(volume.info()[1])
    return found
