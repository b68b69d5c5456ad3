"""One look at a host: capacity, consumption, domains, volumes. In the child process only."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, Final

import libvirt

from hypervisor import domain_xml
from hypervisor.errors import OperationFailedError
from hypervisor.guest_stats import GuestStatistics, Values
from hypervisor.model import DomainSeen, DomainState, HostReport, VolumeSeen

_GIB: Final = 1 << 30

# What is being shut down, crashed but kept, or asleep by its guest's wish still holds memory.
_STATES: Final[Mapping[int, DomainState]] = {
    libvirt.VIR_DOMAIN_PAUSED: DomainState.PAUSED,
    libvirt.VIR_DOMAIN_SHUTOFF: DomainState.STOPPED,
}


#: Why a domain is off. What libvirt has forgotten was on when the host, or libvirt, went off.
_OFF_REASONS: Final[Mapping[int, str]] = {
    libvirt.VIR_DOMAIN_SHUTOFF_UNKNOWN: "host",
    libvirt.VIR_DOMAIN_SHUTOFF_DAEMON: "host",
    libvirt.VIR_DOMAIN_SHUTOFF_SHUTDOWN: "guest",
    libvirt.VIR_DOMAIN_SHUTOFF_DESTROYED: "hand",
    libvirt.VIR_DOMAIN_SHUTOFF_CRASHED: "crash",
}


def state_of(state: int) -> DomainState:
    """Map libvirt's state; whatever is neither paused nor off counts as running."""
    return _STATES.get(state, DomainState.RUNNING)


class Surveyor:
    """Reads a host. Remembers the processors' counters between two looks."""

    def __init__(self, uri: str) -> None:
        self._guests = GuestStatistics(uri)
        self._counters: tuple[int, int] | None = None  #: busy, all; nanoseconds
        self._machine: tuple[libvirt.virConnect, str | None] | None = None

    def report(self, conn: libvirt.virConnect, pool: str) -> HostReport:
        """Look at everything. Raises libvirtError, or OperationFailedError: pool not active."""
        store = conn.storagePoolLookupByName(pool)
        with contextlib.suppress(libvirt.libvirtError):  # a volume is being made: as it was
            store.refresh(0)
        if not store.isActive():
            raise OperationFailedError("report", f"pool {pool} is not active")
        _, capacity, used, _ = store.info()
        memory_mib, memory_used_mib = _memory(conn)
        volumes = _volumes(store)
        capacities = {(pool, volume.name): volume.capacity_bytes for volume in volumes}
        return HostReport(
            hostname=conn.getHostname(),
            vcpus=conn.getInfo()[2],
            memory_mib=memory_mib,
            disk_gib=capacity // _GIB,
            cpu_busy_percent=self._busy_percent(conn),
            memory_used_mib=memory_used_mib,
            disk_used_gib=-(-used // _GIB),
            domains=tuple(_domains(conn, self._guests.read(), capacities)),
            volumes=volumes,
            machine_uuid=self._machine_uuid(conn),
        )

    def domain(self, conn: libvirt.virConnect, domain: libvirt.virDomain) -> DomainSeen:
        """One domain. Its disks' sizes are left to the report."""
        return _seen(conn, domain, {}, {})

    def _machine_uuid(self, conn: libvirt.virConnect) -> str | None:
        """Read it once per connection: it cannot change, and its document is long."""
        if conn.getType() == "TEST":
            return None  # another one whenever its world begins anew
        if self._machine is None or self._machine[0] is not conn:
            self._machine = (conn, domain_xml.machine_uuid(conn.getCapabilities()))
        return self._machine[1]

    def _busy_percent(self, conn: libvirt.virConnect) -> float | None:
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


def _memory(conn: libvirt.virConnect) -> tuple[int, int | None]:
    """Memory of the host in MiB and what is used of it.

    Not getInfo()'s where it can be avoided: that reads the first NUMA node alone.
    """
    try:
        kib = conn.getMemoryStats(libvirt.VIR_NODE_MEMORY_STATS_ALL_CELLS, 0)
    except libvirt.libvirtError:
        return conn.getInfo()[1], None  # the test driver
    unused = kib.get("free", 0) + kib.get("buffers", 0) + kib.get("cached", 0)
    return kib["total"] >> 10, (kib["total"] - unused) >> 10


def _volumes(store: libvirt.virStoragePool) -> tuple[VolumeSeen, ...]:
    found = []
    for volume in store.listAllVolumes(0):
        with _gone(libvirt.VIR_ERR_NO_STORAGE_VOL):
            _, capacity, allocation = volume.info()
            found.append(
                VolumeSeen(name=volume.name(), capacity_bytes=capacity, allocation_bytes=allocation)
            )
    return tuple(sorted(found, key=lambda volume: volume.name))


def _domains(
    conn: libvirt.virConnect, statistics: Values, capacities: Mapping[tuple[str, str], int]
) -> list[DomainSeen]:
    found = []
    for domain in conn.listAllDomains(0):
        with _gone(libvirt.VIR_ERR_NO_DOMAIN):
            values = statistics.get(domain.UUIDString(), {})
            found.append(_seen(conn, domain, values, capacities))
    return sorted(found, key=lambda seen: seen.uuid)


def _seen(
    conn: libvirt.virConnect,
    domain: libvirt.virDomain,
    values: Mapping[str, Any],
    capacities: Mapping[tuple[str, str], int],
) -> DomainSeen:
    parsed = domain_xml.parse(domain.XMLDesc(0))
    number, _, _, _, cpu_time_ns = domain.info()
    state = state_of(number)
    off = state is DomainState.STOPPED
    rss_kib = values.get("balloon.rss")
    disk_bytes = sum(_disk_bytes(conn, disk, values, capacities) for disk in parsed.disks)
    return DomainSeen(
        uuid=parsed.uuid,
        name=parsed.name,
        state=state,
        vcpus=parsed.vcpus,
        memory_mib=parsed.memory_mib,
        mark=parsed.mark,
        cpu_time_ns=None if conn.getType() == "TEST" else cpu_time_ns,  # there, the time of day
        memory_used_mib=None if rss_kib is None else rss_kib >> 10,
        disk_gib=-(-disk_bytes // _GIB),
        run=None if domain.ID() == -1 else domain.ID(),
        off_reason=_OFF_REASONS.get(domain.state()[1]) if off else None,
    )


def _disk_bytes(
    conn: libvirt.virConnect,
    disk: domain_xml.Disk,
    values: Mapping[str, Any],
    capacities: Mapping[tuple[str, str], int],
) -> int:
    """Virtual size of a disk, 0 where the host cannot tell. Never asks the guest's QEMU."""
    with contextlib.suppress(libvirt.libvirtError):  # no such pool or volume any more
        if disk.pool is not None and disk.volume is not None:
            known = capacities.get((disk.pool, disk.volume))
            if known is not None:
                return known
            pool = conn.storagePoolLookupByName(disk.pool)
            return int(pool.storageVolLookupByName(disk.volume).info()[1])
        if disk.path is not None:
            return int(conn.storageVolLookupByPath(disk.path).info()[1])
    for position in range(int(values.get("block.count", 0))):
        if values.get(f"block.{position}.name") == disk.target:
            return int(values.get(f"block.{position}.capacity", 0))
    return 0


@contextlib.contextmanager
def _gone(code: int) -> Iterator[None]:
    """Skip what vanished between the list and the look; it is not there, which is the truth."""
    try:
        yield
    except libvirt.libvirtError as error:
        if error.get_error_code() != code:
            raise
