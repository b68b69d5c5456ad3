"""Operations on a host by libvirt. In the child process only."""

from __future__ import annotations

import base64
import contextlib
import threading
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar

import libvirt

from hypervisor import wire
from hypervisor.child import disks, filters, inspection, migrating_domains, serial_logs, snapshots
from hypervisor.child.background_calls import FileQuery
from hypervisor.child.backing_chains import HostFiles, file_name, is_vm_disk
from hypervisor.child.connect import open_host
from hypervisor.child.consoles import Consoles
from hypervisor.child.domains import marked
from hypervisor.child.domains.attachments import Attachments
from hypervisor.child.poll import HostPoller, domain_state
from hypervisor.child.uploads import Uploads
from hypervisor.credential import Credential
from hypervisor.errors import HostUnreachableError, OperationFailedError
from hypervisor.model import DomainState, HostDomain, HostPoll
from hypervisor.xml import domain as domain_xml
from hypervisor.xml import resource_limits

#: Detects a dead peer after interval x (count + 1) seconds, on an idle connection. Deadlines of
#: calls are mostly shorter.
_KEEPALIVE: Final = (5, 3)
_STARTING_POLL_S: Final = 0.05
_ABORT_S: Final = 5.0
#: Errors of a domain that cannot be moving: it is gone or off, or the host supports no moves.
_NOT_MOVING: Final = frozenset(
    {libvirt.VIR_ERR_NO_DOMAIN, libvirt.VIR_ERR_OPERATION_INVALID, libvirt.VIR_ERR_NO_SUPPORT}
)
_PIECE_BYTES: Final = 1 << 16
_SHOWN: Final = 5  #: maximum volumes in an error message
_PATIENCE_S: Final = 7.5  #: with pools, of a call that does not say itself

T = TypeVar("T")

# The most thorough first: the test driver refuses unknown flags.
_UNDEFINE_FLAGS: Final = (
    libvirt.VIR_DOMAIN_UNDEFINE_MANAGED_SAVE
    | libvirt.VIR_DOMAIN_UNDEFINE_SNAPSHOTS_METADATA
    | libvirt.VIR_DOMAIN_UNDEFINE_CHECKPOINTS_METADATA
    | libvirt.VIR_DOMAIN_UNDEFINE_NVRAM,
    libvirt.VIR_DOMAIN_UNDEFINE_MANAGED_SAVE | libvirt.VIR_DOMAIN_UNDEFINE_SNAPSHOTS_METADATA,
    0,
)


def start_event_loop() -> None:
    """Start libvirt's event loop, which keepalive needs. Call once, before opening connections."""
    # Without a handler every error is printed as well as raised.
    libvirt.registerErrorHandler(lambda *_: None, None)
    libvirt.virEventRegisterDefaultImpl()

    def run() -> None:
        while True:
            libvirt.virEventRunDefaultImpl()

    threading.Thread(target=run, name="libvirt-events", daemon=True).start()


class LibvirtHost:
    """One host. Connects at the first operation, and again after the connection broke."""

    def __init__(
        self, uri: str, credential: Credential | None = None, machine: str | None = None
    ) -> None:
        self._uri = uri
        self._open: Callable[[], libvirt.virConnect] = partial(open_host, uri, credential, machine)
        self._opened: libvirt.virConnect | None = None
        self._poller = HostPoller(self._open)
        self._file_query = FileQuery()
        self._uploads = Uploads(uri)
        self._consoles = Consoles(uri)
        self._attachments = Attachments(self._query_files)
        self._operations: Mapping[str, Callable[..., Any]] = {
            "report": self._poll_host,
            "inspect": inspection.inspect_host,
            "inspect_pool": inspection.inspect_pool,
            "compare_processors": inspection.compare_processors,
            "find": self._find_domain,
            "create_overlay": self._create_overlay,
            "put_volume": self._put_volume,
            "define": self._define_domain,
            "start_paused": self._start_domain_paused,
            "resume": self._resume_domain,
            "shut_down": self._shut_down_guest,
            "power_off": self._power_off_guest,
            "reset": self._reset_guest,
            "destroy": self._destroy_attempt,
            "undefine": self._undefine_attempt,
            "attach_disk": self._attachments.attach,
            "detach_disk": self._attachments.detach,
            "abort_move": self._abort_move,
            "has_volume": self._has_volume,
            "layers_on": self._overlays_of,
            "users_of": self._domains_using,
            "delete_volume": self._delete_volume,
            "files_removed_with": self._files_removed_with,
            "remove": self._remove_assignment,
            "console_tail": serial_logs.read_tail,
            "console_open": self._consoles.open,
            "console_exchange": self._consoles.exchange,
            "console_release": self._consoles.release,
            "upload_begin": self._uploads.begin,
            "upload_send": self._uploads.send,
            "upload_end": self._uploads.end,
            "upload_read_back": self._uploads.read_back,
            "upload_drop": self._uploads.drop,
        }

    def perform(self, op: str, args: Mapping[str, Any]) -> Any:
        """Perform one operation. Raises only HostUnreachableError or OperationFailedError."""
        try:
            conn = self._connection()
        except libvirt.libvirtError as error:
            raise HostUnreachableError(self._uri, str(error)) from error
        try:
            return self._operations[op](conn, **args)
        except libvirt.libvirtError as error:
            if not _is_alive(conn):
                self.close()
                raise HostUnreachableError(self._uri, str(error)) from error
            raise OperationFailedError(op, str(error), error.get_error_code()) from error

    def close(self) -> None:
        """Drop the connection, if there is one."""
        self._uploads.close()
        self._consoles.close()
        if self._opened is not None:
            with contextlib.suppress(libvirt.libvirtError):
                self._opened.close()
            self._opened = None

    def _connection(self) -> libvirt.virConnect:
        if self._opened is not None and not _is_alive(self._opened):
            self.close()
        if self._opened is None:
            self._opened = self._open()
            with contextlib.suppress(libvirt.libvirtError):  # the test driver has none
                self._opened.setKeepAlive(*_KEEPALIVE)
        return self._opened

    def _poll_host(self, conn: libvirt.virConnect, pool: str, patience_s: float) -> HostPoll:
        return self._poller.poll(conn, pool, patience_s)

    def _find_domain(self, conn: libvirt.virConnect, vm_id: str) -> HostDomain | None:
        domain = marked.look_up_domain(conn, vm_id)
        if domain is None:
            return None
        try:
            return self._poller.read_domain(conn, domain)
        except libvirt.libvirtError as error:
            if error.get_error_code() == libvirt.VIR_ERR_NO_DOMAIN:
                return None
            raise

    def _create_overlay(
        self,
        conn: libvirt.virConnect,
        *,
        pool: str,
        name: str,
        base_volume: str | None,
        base_format: str | None,
        capacity_gib: int,
    ) -> None:
        store = conn.storagePoolLookupByName(pool)
        if disks.find_volume(store, name) is not None:
            return
        base_path = None
        if base_volume is not None:
            base = disks.find_volume(store, base_volume)
            if base is None:
                raise OperationFailedError(
                    "create_overlay", f"pool {pool} has no base volume {base_volume}"
                )
            if base.info()[1] > capacity_gib << 30:
                # An overlay smaller than its base would truncate the guest's disk.
                raise OperationFailedError(
                    "create_overlay",
                    f"base volume {base_volume} needs {base.info()[1]} bytes,"
                    f" more than the requested {capacity_gib} GiB",
                )
            base_path = base.path()
            if base_format is None:  # an operator's base: the host detects the format
                base_format = domain_xml.volume_format(base.XMLDesc(0))
            else:
                disks.refuse_backing_file(base, base_format)
        try:
            store.createXML(domain_xml.overlay_xml(name, capacity_gib, base_path, base_format), 0)
        except libvirt.libvirtError as error:
            # Another call made it at the same time.
            if error.get_error_code() != libvirt.VIR_ERR_STORAGE_VOL_EXIST:
                raise

    def _put_volume(self, conn: libvirt.virConnect, pool: str, name: str, content: str) -> None:
        store = conn.storagePoolLookupByName(pool)
        # An earlier writer may have been killed halfway.
        disks.delete_volume(store, name)
        data = base64.b64decode(content)
        volume = store.createXML(domain_xml.raw_volume_xml(name, len(data)), 0)
        stream = conn.newStream(0)
        volume.upload(stream, 0, len(data), 0)
        unsent = memoryview(data)
        while unsent:
            unsent = unsent[stream.send(bytes(unsent[:_PIECE_BYTES])) :]
        stream.finish()

    def _define_domain(self, conn: libvirt.virConnect, spec: Mapping[str, Any]) -> None:
        wanted = wire.decode_domain_spec(spec)
        if wanted.guard is not None:
            source = (wanted.network_kind, wanted.network)
            guard = filters.add_host_addresses(conn, wanted.guard, [source])
            wanted = replace(wanted, guard=guard)
        domain = marked.look_up_domain(conn, wanted.mark.vm_id)
        if domain is not None:
            marked.check_same_mark(wanted, marked.mark_of(domain))
            return
        xml = domain_xml.build_domain_xml(wanted, disks.domain_files(conn, wanted))
        filters.define_filter(conn, domain_xml.parse_tree(xml), wanted.guard)
        conn.defineXML(xml)

    def _start_domain_paused(
        self, conn: libvirt.virConnect, vm_id: str, guard: Mapping[str, Any] | None
    ) -> None:
        domain = marked.require_domain(conn, "start_paused", vm_id)
        if domain.isActive():
            return
        disks.use_file_paths(conn, domain)
        filters.refresh_filters(conn, domain, wire.decode_guard(guard))
        try:
            _start_domain(conn, domain)
        except libvirt.libvirtError as error:
            if error.get_error_code() == libvirt.VIR_ERR_OPERATION_INVALID and domain.isActive():
                return  # another call started it at the same time
            if error.get_error_code() != libvirt.VIR_ERR_INVALID_ARG:
                raise
            # The test driver cannot start paused; its guests do nothing anyway.
            domain.create()
            domain.suspend()

    def _resume_domain(self, conn: libvirt.virConnect, vm_id: str) -> None:
        domain = marked.require_domain(conn, "resume", vm_id)
        migrating_domains.refuse_if_moving("resume", domain)
        while True:
            state, reason = domain.state()
            starting = reason == libvirt.VIR_DOMAIN_PAUSED_STARTING_UP
            if not (state == libvirt.VIR_DOMAIN_PAUSED and starting):
                break
            # The starting process was killed in its call; the daemon still finishes the start.
            time.sleep(_STARTING_POLL_S)
        seen = domain_state(state)
        if seen is DomainState.STOPPED:
            raise OperationFailedError("resume", f"domain {vm_id} is off")
        if seen is DomainState.PAUSED:
            domain.resume()

    def _shut_down_guest(self, conn: libvirt.virConnect, vm_id: str, run: int) -> None:
        domain = marked.domain_in_run(conn, vm_id, run)
        if domain is None:
            return
        if conn.getType() == "TEST":
            domain.shutdown()
            return
        migrating_domains.refuse_if_moving("shut_down", domain)
        try:
            # Not by the guest agent: it may be missing, and a call to it may hang.
            domain.shutdownFlags(libvirt.VIR_DOMAIN_SHUTDOWN_ACPI_POWER_BTN)
        except libvirt.libvirtError as error:
            if not _is_already_off(error):
                raise

    def _power_off_guest(self, conn: libvirt.virConnect, vm_id: str, run: int) -> None:
        domain = marked.domain_in_run(conn, vm_id, run)
        if domain is not None:
            _destroy_domain(domain)

    def _reset_guest(self, conn: libvirt.virConnect, vm_id: str, run: int) -> None:
        domain = marked.domain_in_run(conn, vm_id, run)
        if domain is None:
            raise OperationFailedError("reset", f"domain {vm_id} is off or was restarted")
        migrating_domains.refuse_if_moving("reset", domain)
        domain.reset(0)
        if domain_state(domain.state()[0]) is DomainState.PAUSED:
            domain.resume()

    def _destroy_attempt(
        self, conn: libvirt.virConnect, vm_id: str, mark: Mapping[str, Any] | None
    ) -> None:
        domain = marked.look_up_domain(conn, vm_id)
        if domain is None or not marked.belongs_to_attempt(domain, wire.decode_mark(mark)):
            return
        _destroy_domain(domain)

    def _undefine_attempt(
        self, conn: libvirt.virConnect, vm_id: str, mark: Mapping[str, Any] | None
    ) -> None:
        domain = marked.look_up_domain(conn, vm_id)
        if domain is None or not marked.belongs_to_attempt(domain, wire.decode_mark(mark)):
            return
        if domain.isActive():
            # libvirt would keep it running without a definition.
            raise OperationFailedError("undefine", f"domain {vm_id} still runs")
        _undefine_domain(domain)

    def _abort_move(self, conn: libvirt.virConnect, vm_id: str) -> None:
        domain = marked.look_up_domain(conn, vm_id)
        began = time.monotonic()
        while domain is not None and _is_moving_away(domain):
            migrating_domains.abort_move(domain, since=began)
            if time.monotonic() > began + _ABORT_S:
                raise OperationFailedError("abort_move", f"the move of {vm_id} does not end")
            time.sleep(_STARTING_POLL_S)

    def _has_volume(self, conn: libvirt.virConnect, pool: str, name: str) -> bool:
        return disks.find_volume(conn.storagePoolLookupByName(pool), name) is not None

    def _overlays_of(self, conn: libvirt.virConnect, pool: str, name: str) -> list[str]:
        return snapshots.overlays_of(HostFiles(conn, pool), name)

    def _domains_using(
        self,
        conn: libvirt.virConnect,
        pool: str,
        volumes: Sequence[str],
        patience_s: float = _PATIENCE_S,
    ) -> list[str]:
        def find_users(reading: Callable[[str], None]) -> list[str]:
            return snapshots.domains_using(HostFiles(conn, pool, reading), volumes)

        return self._query_files(conn, ("users_of", pool, *volumes), find_users, patience_s)

    def _delete_volume(
        self, conn: libvirt.virConnect, pool: str, name: str, patience_s: float = _PATIENCE_S
    ) -> None:
        self._deletable_files(conn, pool, [name], patience_s=patience_s)
        disks.delete_volume(conn.storagePoolLookupByName(pool), name)

    def _deletable_files(
        self,
        conn: libvirt.virConnect,
        pool: str,
        volumes: Sequence[str],
        vm_id: str = "",
        definitions: snapshots.DomainDefinitions | None = None,
        *,
        patience_s: float,
    ) -> list[str]:
        """Return the files to delete with a VM's volumes; raise if anything else uses one."""
        with contextlib.suppress(libvirt.libvirtError):  # busy with another volume
            # Not in the query: where the VM's own pool hangs, the host counts as silent.
            conn.storagePoolLookupByName(pool).refresh(0)

        def find_uses(reading: Callable[[str], None]) -> snapshots.VolumeUses:
            files = HostFiles(conn, pool, reading, refreshed=[pool])
            return snapshots.volume_uses(files, volumes, vm_id, definitions)

        found = self._query_files(conn, ("uses_of", pool, vm_id, *volumes), find_uses, patience_s)
        _check_not_in_use(conn, volumes, found)
        return found.files

    def _files_removed_with(
        self,
        conn: libvirt.virConnect,
        *,
        vm_id: str,
        assignment_id: str,
        pool: str,
        volumes: Sequence[str],
        patience_s: float = _PATIENCE_S,
    ) -> list[str]:
        domain = marked.look_up_domain(conn, vm_id)
        mark = None if domain is None else marked.mark_of(domain)
        definitions = None
        if domain is not None and mark is not None and mark.assignment_id == assignment_id:
            definitions = snapshots.read_definitions(domain)
        files = self._deletable_files(
            conn, pool, volumes, vm_id, definitions, patience_s=patience_s
        )
        return sorted({file_name(path) for path in files})

    def _query_files(
        self,
        conn: libvirt.virConnect,
        key: Hashable,
        query: Callable[[Callable[[str], None]], T],
        patience_s: float,
    ) -> T:
        """Run a query about files in pools that may hang."""
        try:
            return self._file_query.run(conn, key, query, patience_s)
        finally:
            if self._file_query.occupies(conn) and self._opened is conn:
                self._opened = None

    def _remove_assignment(
        self,
        conn: libvirt.virConnect,
        *,
        vm_id: str,
        assignment_id: str,
        generation: int | None,
        pool: str,
        volumes: Sequence[str],
        patience_s: float = _PATIENCE_S,
    ) -> bool:
        domain = marked.look_up_domain(conn, vm_id)
        own = definitions = None
        if domain is not None:
            mark = marked.mark_of(domain)
            if mark is None:
                return False  # an operator removed its mark: its owner is unknown
            if mark.assignment_id == assignment_id:
                if generation not in {None, mark.generation}:
                    return False
                own, definitions = domain, snapshots.read_definitions(domain)
                _destroy_domain(domain)
        files = self._deletable_files(
            conn, pool, volumes, vm_id, definitions, patience_s=patience_s
        )
        # Read before the definition that names them is removed: this process may be killed.
        snapshots.delete_files(conn, files)
        if own is not None:
            _undefine_domain(own)
        store = conn.storagePoolLookupByName(pool)
        for volume in volumes:
            disks.delete_volume(store, volume)
        absent = not marked.has_domain_of_attempt(conn, vm_id, assignment_id) and not _any_exists(
            store, volumes
        )
        if absent:
            try:
                serial_logs.delete_logs(conn, vm_id)
            except (libvirt.libvirtError, OperationFailedError):
                # A log left behind holds no capacity. A returning host deletes old logs, or a VM
                # that comes back there would continue its old log.
                if not _is_alive(conn):
                    raise
        return absent


def _is_alive(conn: libvirt.virConnect) -> bool:
    try:
        return bool(conn.isAlive())
    except libvirt.libvirtError:
        return False


def _check_not_in_use(
    conn: libvirt.virConnect, volumes: Sequence[str], uses: snapshots.VolumeUses
) -> None:
    """Raise if another domain or another volume uses one of a VM's files."""
    users, on_them = list(uses.domains), ", ".join(uses.volumes[:_SHOWN])
    if len(uses.volumes) > _SHOWN:
        on_them += f" and {len(uses.volumes) - _SHOWN} more"
    if on_them:
        why = f"{', '.join(volumes)}: not deleted, as volume {on_them} rests on it"
        if all(map(is_vm_disk, map(file_name, uses.volumes))):
            raise OperationFailedError(
                "remove", f"{why}: it is the disk of a VM of fuga's, leave it as it is"
            )
        raise OperationFailedError(
            "remove",
            f"{why}; move {on_them} out of its pool's folder if it is a raw disk, whose guest may"
            " have written that name; else give it another base, or delete it",
        )
    if not users:
        return
    why = f"{', '.join(volumes)}: not deleted, as domain {', '.join(users)} uses it"
    foreign = [name for name in users if not marked.has_fuga_mark(conn, name)]
    if len(foreign) < len(users):
        own = ", ".join(name for name in users if name not in foreign)
        why += f"; {own} is a VM of fuga's: leave that as it is"
    if foreign:
        why += f"; undefine {', '.join(foreign)}, or give it another disk"
    kept = "; ".join(f"{what} of {name}" for name, what in uses.domains.items() if what)
    if kept:
        why += (
            f"; what names it is {kept}: it is enough to remove that (`virsh snapshot-delete` or"
            " `checkpoint-delete` with `--metadata`, `virsh managedsave-remove`)"
        )
    raise OperationFailedError("remove", why)


def _is_moving_away(domain: libvirt.virDomain) -> bool:
    """Return whether a domain is moving away from this host."""
    try:
        job = domain.jobStats()
    except libvirt.libvirtError as error:
        if error.get_error_code() in _NOT_MOVING:
            return False
        raise
    under_way = job.get("type", libvirt.VIR_DOMAIN_JOB_NONE) != libvirt.VIR_DOMAIN_JOB_NONE
    outgoing = libvirt.VIR_DOMAIN_JOB_OPERATION_MIGRATION_OUT
    return under_way and bool(job.get("operation") == outgoing)


def _start_domain(conn: libvirt.virConnect, domain: libvirt.virDomain) -> None:
    try:
        domain.createWithFlags(libvirt.VIR_DOMAIN_START_PAUSED)
    except libvirt.libvirtError as error:
        if error.get_error_code() != libvirt.VIR_ERR_CONFIG_UNSUPPORTED:
            raise
        # A host without the cpu controller of cgroups refuses CPU shares.
        flags = libvirt.VIR_DOMAIN_XML_INACTIVE | libvirt.VIR_DOMAIN_XML_SECURE
        xml = resource_limits.without_shares(domain.XMLDesc(flags))
        if xml is None:
            raise
        conn.defineXML(xml).createWithFlags(libvirt.VIR_DOMAIN_START_PAUSED)


def _destroy_domain(domain: libvirt.virDomain) -> None:
    try:
        domain.destroy()
    except libvirt.libvirtError as error:
        if not _is_already_off(error):
            raise


def _is_already_off(error: libvirt.libvirtError) -> bool:
    """Return whether the error says that a domain is off or has vanished."""
    return error.get_error_code() in {libvirt.VIR_ERR_OPERATION_INVALID, libvirt.VIR_ERR_NO_DOMAIN}


def _undefine_domain(domain: libvirt.virDomain) -> None:
    for flags in _UNDEFINE_FLAGS:
        try:
            domain.undefineFlags(flags)
        except libvirt.libvirtError as error:
            if error.get_error_code() == libvirt.VIR_ERR_NO_DOMAIN:
                return
            if error.get_error_code() != libvirt.VIR_ERR_INVALID_ARG or flags == 0:
                raise
        else:
            return


def _any_exists(pool: libvirt.virStoragePool, names: Sequence[str]) -> bool:
    """Refresh a pool, and return whether it has any of these volumes."""
    with contextlib.suppress(libvirt.libvirtError):  # busy with another volume
        pool.refresh(0)
    return bool(set(names) & {volume.name() for volume in pool.listAllVolumes(0)})
