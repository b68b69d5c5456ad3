"""Settings of an infrastructure manager."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field, PositiveFloat, PositiveInt, field_validator
from pydantic_settings import NoDecode

from hypervisor.model import MAX_CLOSED_NETWORKS
from registry.moves import MoveLimits
from registry.tasks import WorkQueue
from service.settings import SharedSettings
from workers.context import MoveOptions
from workers.network_guard import HostNetworks, merge_networks

Port = Annotated[int, Field(ge=1, le=65535)]
#: Each port costs two rules per interface and server.
_MAX_PORTS: Final = 16
_MIN_PORT: Final = 1024  #: lower ports belong to services of the host
_MIN_PORT_COUNT: Final = 16  #: each move takes two; some may be in use


class WorkerSettings(SharedSettings):
    """Read from `FUGA_*` and the file that `FUGA_CONFIG` names."""

    concurrency: PositiveInt = Field(
        4,
        description="Threads for builds; the same number each for removals, for fences, for moves,"
        " and for power and consoles, so that none of these waits for another.",
    )
    queues: Annotated[frozenset[WorkQueue], NoDecode] = Field(
        frozenset(WorkQueue),
        description="Queues to work on: fence, urgent, remove, build, moves, images;"
        " comma-separated, all by default.",
    )
    threads_per_host: PositiveInt = Field(
        2, description="Maximum threads per host; one more for work without its storage."
    )
    console_threads: PositiveInt = Field(
        8, description="Maximum number of open consoles per worker."
    )
    call_deadline_s: PositiveFloat = Field(
        60, description="Time after which the child process that calls the host is killed."
    )
    lookup_deadline_s: PositiveFloat = Field(
        10, description="The same for the first call of a host, so that a hung one costs little."
    )
    upload_threads: PositiveInt | None = Field(
        None, description="Maximum threads for image uploads; default: half of them."
    )
    upload_deadline_s: PositiveFloat = Field(
        3600, description="Time after which an upload is given up and retried later."
    )
    upload_piece_deadline_s: PositiveFloat = Field(
        20,
        description="Time for each MiB of an upload, to distinguish a hung host from a slow one.",
    )
    thread_wait_s: PositiveFloat = Field(
        2, description="Time that a thread waits for its turn on a host before it moves on."
    )
    stop_grace_s: PositiveFloat = Field(
        10, description="Time that a stopping worker waits for a host that hangs."
    )
    silent_host_pause_s: PositiveFloat = Field(
        15, description="Time without a thread for a host that did not answer."
    )

    move_deadline_s: PositiveFloat = Field(
        3600, description="Time after which a move is aborted; the VM stays where it was."
    )
    move_bandwidth_mib_s: PositiveInt | None = Field(
        None, description="Maximum MiB/s of a move; default: what the network gives."
    )
    move_downtime_ms: PositiveInt | None = Field(
        None, description="Longest standstill of a guest that QEMU aims at; default: its own."
    )
    move_auto_converge: bool = Field(
        True, description="Slow down a guest that writes memory faster than it is copied."
    )
    move_encrypt: bool = Field(
        True, description="Encrypt memory and disk on their way; hosts need certificates for QEMU."
    )
    move_ports: Annotated[tuple[Port, Port], NoDecode] = Field(
        (49152, 49215),
        description="First and last TCP port at which hosts receive VMs, as FIRST-LAST. The more,"
        " the harder it is for an unknown caller to hold all of them.",
    )
    move_hang_s: PositiveFloat = Field(
        30,
        description="Time without a byte of memory or disk after which a move is repeated or"
        " fails; 10 at most while the guest stands still.",
    )

    host_networks: Annotated[tuple[str, ...], NoDecode] = Field(
        (),
        description="Networks in which hosts have addresses, as CIDR, comma-separated: guests"
        " reach nothing there but `FUGA_GATEWAY_PORTS` of their gateway and name servers.",
    )
    gateway_ports: Annotated[tuple[Port, ...], NoDecode] = Field(
        (53, 67, 123),
        description="UDP and TCP ports of their gateway, and of name servers in hosts' networks,"
        " that guests reach; comma-separated.",
    )

    def move_options(self) -> MoveOptions:
        """Return the options of VMs' moves that these settings give."""
        return MoveOptions(
            limits=MoveLimits(per_host=self.moves_per_host, everywhere=self.moves_at_once),
            deadline_s=self.move_deadline_s,
            bandwidth_mib_s=self.move_bandwidth_mib_s,
            downtime_ms=self.move_downtime_ms,
            auto_converge=self.move_auto_converge,
            encrypt=self.move_encrypt,
            ports=self.move_ports,
            hang_s=self.move_hang_s,
        )

    def known_host_networks(self) -> HostNetworks:
        """Return the IPv4 networks of hosts closed to guests, and gateway ports open to them."""
        ipv4 = tuple(each for each in self.host_networks if ":" not in each)
        return HostNetworks(networks=ipv4, gateway_ports=self.gateway_ports)

    @field_validator("host_networks", "gateway_ports", mode="before")
    @classmethod
    def _split_commas(cls, value: object) -> object:
        """Return the parts of a setting that is a list separated by commas."""
        if not isinstance(value, str):
            return value
        return [each.strip() for each in value.split(",") if each.strip()]

    @field_validator("move_ports", mode="before")
    @classmethod
    def _split_range(cls, value: object) -> object:
        """Return both ends of a setting ``FIRST-LAST``."""
        return value.split("-") if isinstance(value, str) else value

    @field_validator("move_ports")
    @classmethod
    def _check_port_count(cls, ports: tuple[int, int]) -> tuple[int, int]:
        """Check that a range of ports for moves is high and long enough."""
        first, last = ports
        if first < _MIN_PORT or last - first + 1 < _MIN_PORT_COUNT:
            raise ValueError(
                f"{first}-{last}; FIRST is {_MIN_PORT} or more, and {_MIN_PORT_COUNT} ports are"
                " needed, such as 49152-49215"
            )
        return ports

    @field_validator("host_networks")
    @classmethod
    def _merge_networks(cls, networks: tuple[str, ...]) -> tuple[str, ...]:
        """Return the hosts' networks merged; raise ValueError for more than filters take."""
        merged = merge_networks(networks)
        if len(merged) > MAX_CLOSED_NETWORKS:
            raise ValueError(
                f"{len(merged)} networks; at most {MAX_CLOSED_NETWORKS} are possible, and each host"
                " adds its own: name networks that contain several"
            )
        return merged

    @field_validator("gateway_ports")
    @classmethod
    def _check_gateway_ports(cls, ports: tuple[int, ...]) -> tuple[int, ...]:
        """Return the gateway ports that guests may reach, sorted; raise ValueError for too many."""
        if not 1 <= len(ports) <= _MAX_PORTS:
            raise ValueError(f"{len(ports)} ports; 1 to {_MAX_PORTS} are possible")
        return tuple(sorted(set(ports)))

    @field_validator("queues", mode="before")
    @classmethod
    def _split_queue_names(cls, names: object) -> object:
        """Return the queues that a worker serves; raise ValueError for an unknown one."""
        found = names.split(",") if isinstance(names, str) else names
        if not isinstance(found, list):
            return found
        found = [each.strip() if isinstance(each, str) else each for each in found]
        known = list(WorkQueue)
        unknown = [each for each in found if each not in known]
        if unknown or not found:
            raise ValueError(f"{', '.join(known)} are known, one of them at least")
        return found

    @property
    def threads(self) -> dict[WorkQueue, int]:
        """How many threads each queue of this worker may occupy, the most urgent queue first."""
        uploads = self.upload_threads or max(1, self.concurrency // 2)
        return {
            queue: uploads if queue is WorkQueue.IMAGES else self.concurrency
            for queue in WorkQueue
            if queue in self.queues
        }
