"""One poll of a host: capacity, consumption, domains, volumes. In the child process only."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, Final

import libvirt

from hypervisor.child import filters, inspection, migrating_domains, serial_logs, snapshots
from hypervisor.child.background_calls import BackgroundCall
from hypervisor.child.backing_chains import is_data_volume
from hypervisor.child.idle_connections import IdleConnections
from hypervisor.child.pool_watch import OtherVolumes, Place, PoolWatch, SeenPool, SilentPool
from hypervisor.errors import HypervisorError
from hypervisor.model import MAX_NAME, DomainState, HostDomain, HostPoll
from hypervisor.xml import domain as domain_xml
from hypervisor.xml.domain import ParsedDomain
from hypervisor.xml.node_device import NetworkDevice, network_device
from plain_text import shorten_text

_NOWAIT: Final = libvirt.VIR_CONNECT_GET_ALL_DOMAINS_STATS_NOWAIT
_GROUPS: Final = libvirt.VIR_DOMAIN_STATS_BALLOON | libvirt.VIR_DOMAIN_STATS_BLOCK

#: Time limit for the statistics of all guests of a host.
_PATIENCE_S: Final = 2.0
_MAX_BLOCKED: Final = 2

Values = Mapping[str, Mapping[str, Any]]  #: by UUID of the domain


class GuestStatistics:
    """Reads memory and disk sizes from every guest's QEMU.

    NOWAIT skips a guest that another call is busy with, but the first call to a frozen QEMU blocks
    until that is destroyed or wakes. So each call has a thread. While one hangs, it keeps the
    frozen guest busy, and the next call skips that guest. (CPU times in these statistics ask QEMU,
    too; `virDomainGetInfo` does not.)
    """

    def __init__(self, connections: IdleConnections) -> None:
        self._connections = connections
        self._open: list[BackgroundCall[Values]] = []

    def read(self) -> Values:
        """Return the statistics of guests by domain UUID; empty if they are late."""
        self._open = [question for question in self._open if question.is_alive()]
        if len(self._open) >= _MAX_BLOCKED:
            return {}
        question = BackgroundCall(self._connections, _read_guest_statistics)
        if question.is_running_after(_PATIENCE_S):
            self._open.append(question)
            return {}
        try:
            return question.result()
        except (libvirt.libvirtError, HypervisorError):
            return {}  # the report itself shows a dead host


def _read_guest_statistics(conn: libvirt.virConnect) -> Values:
    """Return libvirt's statistics of all guests by domain UUID, without waiting for any."""
    found = conn.getAllDomainStats(_GROUPS, _NOWAIT)
    return {domain.UUIDString(): values for domain, values in found}


_GIB: Final = 1 << 30
_INTERFACES_LAST_S: Final = 600.0
#: Time that a poll waits for interfaces; a late answer comes with a later poll.
_INTERFACES_PATIENCE_S: Final = 0.2
#: Interfaces beyond these are not shown.
_MAX_INTERFACES: Final = 64
#: Maximum devices to read; each costs a call.
_MAX_DEVICES: Final = 256
#: Devices of guests and containers, and the loopback: they are not the host's hardware.
_OF_GUESTS: Final = ("net_lo", "net_vnet", "net_tap", "net_macvtap", "net_veth", "net_cali")
#: Names and MAC addresses of interfaces.
InterfaceMacs = tuple[tuple[str, str], ...]

# A domain that shuts down, crashed but is kept, or sleeps still holds memory.
_STATES: Final[Mapping[int, DomainState]] = {
    libvirt.VIR_DOMAIN_PAUSED: DomainState.PAUSED,
    libvirt.VIR_DOMAIN_SHUTOFF: DomainState.STOPPED,
}


#: Why a domain is off. Without a reason, it was on when the host or libvirt stopped.
_OFF_REASONS: Final[Mapping[int, str]] = {
    libvirt.VIR_DOMAIN_SHUTOFF_UNKNOWN: "host",
    libvirt.VIR_DOMAIN_SHUTOFF_DAEMON: "host",
    libvirt.VIR_DOMAIN_SHUTOFF_SHUTDOWN: "guest",
    libvirt.VIR_DOMAIN_SHUTOFF_DESTROYED: "hand",
    libvirt.VIR_DOMAIN_SHUTOFF_CRASHED: "crash",
}


def domain_state(state: int) -> DomainState:
    """Convert libvirt's domain state; all states but paused and off count as running."""
    return _STATES.get(state, DomainState.RUNNING)


class _DisksOfDomain:
    """The sum of the virtual sizes of a domain's disks, each up to a maximum."""

    def __init__(self, most: int | None) -> None:
        self._most = most
        self._largest = 0
        self.size_bytes = 0
        self.capped_disk: str | None = None  #: the disk that claims most, with its claim

    def add(self, name: str | None, size: int) -> None:
        """Add a disk by its name; headers, which guests and operators write, may claim any size."""
        if self._most is not None and size > self._most:
            if size > self._largest:
                self._largest = size
                shown = shorten_text(name or "a disk", MAX_NAME)
                self.capped_disk = f"{shown} ({-(-size // _GIB)} GiB)"
            size = self._most
        self.size_bytes += size


class HostPoller:
    """Polls one host. Keeps the CPU counters between polls."""

    def __init__(self, opening: Callable[[], libvirt.virConnect]) -> None:
        connections = IdleConnections(opening)
        self._guests = GuestStatistics(connections)
        self._pool = PoolWatch(connections)
        self._others = OtherVolumes(connections)
        self._counters: tuple[int, int] | None = None  #: busy, all; nanoseconds
        self._read_capabilities: tuple[libvirt.virConnect, str] | None = None  #: capabilities
        self._shares: tuple[libvirt.virConnect, bool] | None = None
        self._interfaces = Interfaces(connections)

    def poll(self, conn: libvirt.virConnect, pool: str, patience_s: float) -> HostPoll:
        """Poll the host; leave its pool out if that does not answer within ``patience_s``.

        Raises libvirtError; OperationFailedError if the pool is not active.
        """
        by = time.monotonic() + patience_s
        statistics = self._guests.read()
        self._pool.start_query(pool)
        domains = list(_read_domains(conn, statistics))
        memory_mib, memory_used_mib = _read_memory(conn)
        capabilities = self._capabilities(conn)
        shares_kept, can_filter = self._has_cpu_shares(conn), filters.can_filter(conn)
        found = self._pool.await_state(by=by)  # this may take longest, so it comes last
        seen = found if isinstance(found, SeenPool) else None
        volumes = () if seen is None else seen.volumes
        listed = {} if seen is None else seen.sizes(pool)
        most = None if seen is None else seen.capacity_bytes
        disks = self._disk_sizes(listed, [parsed for _, parsed in domains], statistics, by, most)
        return HostPoll(
            hostname=shorten_text(conn.getHostname(), MAX_NAME),
            vcpus=conn.getInfo()[2],
            memory_mib=memory_mib,
            disk_gib=None if seen is None else seen.capacity_bytes // _GIB,
            cpu_busy_percent=self._cpu_busy_percent(conn),
            memory_used_mib=memory_used_mib,
            disk_used_gib=None if seen is None else -(-seen.used_bytes // _GIB),
            domains=tuple(
                replace(
                    domain,
                    disk_gib=-(-disks[domain.uuid].size_bytes // _GIB),
                    capped_disk=disks[domain.uuid].capped_disk,
                    volume_files=_data_volumes(pool, seen, parsed),
                )
                for domain, parsed in domains
            ),
            volumes=volumes,
            machine_uuid=domain_xml.machine_uuid(capabilities) if capabilities else None,
            largest_console_bytes=serial_logs.largest_log_bytes(statistics),
            pool_silent_s=found.since_s if isinstance(found, SilentPool) else None,
            security_model=domain_xml.security_model(capabilities) if capabilities else None,
            shares_kept=shares_kept,
            can_filter=can_filter,
            interfaces=self._interfaces.macs(),
            unnamed=() if seen is None else _unreferenced_volumes(conn, pool, seen, domains),
        )

    def read_domain(self, conn: libvirt.virConnect, domain: libvirt.virDomain) -> HostDomain:
        """Read one domain, without the sizes of its disks."""
        return _host_domain(conn, domain, domain_xml.parse_domain(domain.XMLDesc(0)), {})

    def _disk_sizes(
        self,
        listed: Mapping[Place, int],
        domains: Sequence[ParsedDomain],
        statistics: Values,
        by: float,
        most: int | None,
    ) -> Mapping[str, _DisksOfDomain]:
        """Return the virtual sizes of each domain's disks; 0 if unknown.

        A disk counts as ``most`` bytes, what the pool holds, if its header claims more. Never
        queries the guest's QEMU.
        """
        found = {domain.uuid: _DisksOfDomain(most) for domain in domains}
        elsewhere: list[tuple[str, Place]] = []
        for domain in domains:
            reported = _reported_sizes(statistics.get(domain.uuid, {}))
            for disk in domain.disks:
                place = _disk_place(disk)
                size = None if place is None else listed.get(place)
                size = reported.get(disk.target) if size is None else size
                if size is not None:
                    found[domain.uuid].add(disk.target if place is None else place[1], size)
                elif place is not None:
                    elsewhere.append((domain.uuid, place))
        sizes = self._others.sizes([place for _, place in elsewhere], by=by)
        for uuid, place in elsewhere:
            found[uuid].add(place[1], sizes.get(place, 0))
        return found

    def _capabilities(self, conn: libvirt.virConnect) -> str | None:
        """Return the host's capabilities, read once per connection: they rarely change."""
        if conn.getType() == "TEST":
            return None  # its UUID changes with every new connection
        if self._read_capabilities is None or self._read_capabilities[0] is not conn:
            self._read_capabilities = (conn, conn.getCapabilities())
        return self._read_capabilities[1]

    def _has_cpu_shares(self, conn: libvirt.virConnect) -> bool | None:
        """Return whether cgroups have CPU shares, read once per connection."""
        if conn.getType() != "QEMU":
            return None
        if self._shares is not None and self._shares[0] is conn:
            return self._shares[1]
        found = inspection.has_cpu_shares(conn)
        if found is not None:
            self._shares = (conn, found)
        return found

    def _cpu_busy_percent(self, conn: libvirt.virConnect) -> float | None:
        """Return how busy the host's CPUs were since the last poll, in per cent, or None."""
        try:
            times = conn.getCPUStats(libvirt.VIR_NODE_CPU_STATS_ALL_CPUS, 0)
        except libvirt.libvirtError:
            return None
        idle = int(times.get("idle", 0)) + int(times.get("iowait", 0))
        everything = idle + int(times.get("kernel", 0)) + int(times.get("user", 0))
        before, self._counters = self._counters, (everything - idle, everything)
        if before is None or everything <= before[1]:
            return None
        busy = 100.0 * (everything - idle - before[0]) / (everything - before[1])
        return min(100.0, max(0.0, busy))


class Interfaces:
    """The network interfaces of one host, read every few minutes in a thread.

    libvirt's node device driver is separate. It may hang or start slowly while the host is well.
    """

    def __init__(
        self, connections: IdleConnections, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._connections = connections
        self._clock = clock
        self._found: InterfaceMacs = ()
        self._queried_at: float | None = None
        self._question: BackgroundCall[InterfaceMacs] | None = None

    def macs(self) -> InterfaceMacs:
        """Return names and MACs of the known interfaces; read them again every few minutes."""
        now = self._clock()
        due = self._queried_at is None or now - self._queried_at > _INTERFACES_LAST_S
        if due and self._question is None:
            self._queried_at = now
            self._question = BackgroundCall(self._connections, read_interfaces)
        if self._question is not None and not self._question.is_running_after(
            _INTERFACES_PATIENCE_S
        ):
            with contextlib.suppress(Exception):  # after any error a later poll reads again
                self._found = self._question.result()
            self._question = None
        return self._found


def read_interfaces(conn: libvirt.virConnect) -> InterfaceMacs:
    """Return names and MAC addresses of a host's hardware interfaces, or of all if none is.

    Empty if libvirt has no node device driver.
    """
    try:
        devices = conn.listAllDevices(libvirt.VIR_CONNECT_LIST_NODE_DEVICES_CAP_NET)
    except libvirt.libvirtError:
        return ()
    found = list(_network_devices(devices))
    shown = [each for each in found if each.is_hardware] or found
    named = sorted((shorten_text(each.name, MAX_NAME), each.mac) for each in shown)
    return tuple(named[:_MAX_INTERFACES])


def _network_devices(devices: Sequence[libvirt.virNodeDevice]) -> Iterator[NetworkDevice]:
    """Yield the host's network devices, except those of guests."""
    own = (each for each in devices if not each.name().startswith(_OF_GUESTS))
    for device in islice(own, _MAX_DEVICES):
        with contextlib.suppress(libvirt.libvirtError):  # the device has vanished
            if (found := network_device(device.XMLDesc(0))) is not None:
                yield found


def _unreferenced_volumes(
    conn: libvirt.virConnect,
    pool: str,
    seen: SeenPool,
    domains: Sequence[tuple[HostDomain, ParsedDomain]],
) -> tuple[str, ...]:
    """Return the names of a pool's volumes to which no domain or snapshot refers."""
    named = {place for _, parsed in domains for place in parsed.files}
    left = [
        volume.name
        for volume in seen.volumes
        if not {(pool, volume.name), (None, f"{seen.folder}/{volume.name}")} & named
    ]
    if any(not snapshots.is_fuga_volume(name) for name in left):
        with contextlib.suppress(libvirt.libvirtError):  # the test driver, or a domain has vanished
            of_snapshots = snapshots.files_of_all_snapshots(conn)
            left = [name for name in left if f"{seen.folder}/{name}" not in of_snapshots]
    return tuple(left)


def _data_volumes(pool: str, seen: SeenPool | None, parsed: ParsedDomain) -> tuple[str, ...]:
    """Return the names of a pool's data volumes that the disks of a domain name, sorted."""
    folder = None if seen is None else seen.folder
    names = set()
    for place, name in parsed.files:
        at, _, last = name.rpartition("/")
        if place == pool:
            names.add(name)
        elif place is None and folder is not None and at == folder:
            names.add(last)
    return tuple(sorted(filter(is_data_volume, names)))


def _read_memory(conn: libvirt.virConnect) -> tuple[int, int | None]:
    """Return the host's total and used memory in MiB; None for used if unknown.

    getInfo() is the fallback: it reads only the first NUMA node.
    """
    try:
        kib = conn.getMemoryStats(libvirt.VIR_NODE_MEMORY_STATS_ALL_CELLS, 0)
    except libvirt.libvirtError:
        return conn.getInfo()[1], None  # the test driver
    unused = kib.get("free", 0) + kib.get("buffers", 0) + kib.get("cached", 0)
    return kib["total"] >> 10, (kib["total"] - unused) >> 10


def _read_domains(
    conn: libvirt.virConnect, statistics: Values
) -> Iterator[tuple[HostDomain, ParsedDomain]]:
    """Yield the domains in order of UUID. Domains that vanish during it are left out."""
    for domain in sorted(conn.listAllDomains(0), key=libvirt.virDomain.UUIDString):
        if serial_logs.is_log_reader(domain):
            continue
        try:
            parsed = domain_xml.parse_domain(domain.XMLDesc(0))
            yield _host_domain(conn, domain, parsed, statistics.get(parsed.uuid, {})), parsed
        except libvirt.libvirtError as error:
            if error.get_error_code() != libvirt.VIR_ERR_NO_DOMAIN:
                raise


def _host_domain(
    conn: libvirt.virConnect,
    domain: libvirt.virDomain,
    parsed: ParsedDomain,
    values: Mapping[str, Any],
) -> HostDomain:
    """Return a domain of the poll, from libvirt's information, its XML and its statistics."""
    number, _, _, _, cpu_time_ns = domain.info()
    state = domain_state(number)
    off = state is DomainState.STOPPED
    rss_kib = values.get("balloon.rss")
    return HostDomain(
        uuid=parsed.uuid,
        name=shorten_text(parsed.name, MAX_NAME),
        state=state,
        vcpus=parsed.vcpus,
        memory_mib=parsed.memory_mib,
        mark=parsed.mark,
        cpu_time_ns=None
        if conn.getType() == "TEST"
        else cpu_time_ns,  # the test driver returns the time of day
        memory_used_mib=None if rss_kib is None else rss_kib >> 10,
        run=None if domain.ID() == -1 else domain.ID(),
        off_reason=_OFF_REASONS.get(domain.state()[1]) if off else None,
        filtered=None if conn.getType() == "TEST" else parsed.filtered,
        paused_by_move=state is DomainState.PAUSED and migrating_domains.is_paused_by_move(domain),
        attached=tuple(shorten_text(each, MAX_NAME) for each in parsed.attached),
    )


def _disk_place(disk: domain_xml.Disk) -> Place | None:
    """Return where a disk is: pool and volume, or None and its path; None if neither is known."""
    if disk.pool is not None and disk.volume is not None:
        return disk.pool, disk.volume
    return None if disk.path is None else (None, disk.path)


def _reported_sizes(values: Mapping[str, Any]) -> Mapping[str | None, int]:
    """Return the sizes of a domain's disks in bytes by target, from its statistics."""
    return {
        values[f"block.{position}.name"]: int(values[f"block.{position}.capacity"])
        for position in range(int(values.get("block.count", 0)))
        if f"block.{position}.capacity" in values
    }
