"""The resources that every task gets."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from threading import BoundedSemaphore, Event
from uuid import UUID

from registry import Registry
from registry.db import checkpoint
from registry.images import ImageStore
from registry.moves import MoveLimits
from registry.tasks import Claim, Due, Leftover
from workers.console_threads import ConsoleThreads
from workers.errors import StoppingError
from workers.host_limits import HostLimits
from workers.network_guard import HostNetworks


class TaskOutcome(StrEnum):
    """The outcome of a worker's task."""

    NOT_OURS = "not_ours"  #: another worker holds it, or nothing is left to do
    DONE = "done"
    HANDED_BACK = "handed_back"  #: the sweep sends it again
    FAILED = "failed"
    CLAIM_LOST = "claim_lost"  #: this worker was too slow, and has cleaned up


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveOptions:
    """How VMs are moved between hosts."""

    limits: MoveLimits = field(default_factory=lambda: MoveLimits(per_host=2, everywhere=8))
    deadline_s: float = 3600.0
    bandwidth_mib_s: int | None = None
    downtime_ms: int | None = None
    auto_converge: bool = True
    encrypt: bool = True
    ports: tuple[int, int] = (49152, 49215)
    hang_s: float = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerContext:
    """The register center, the hosts, and the name under which this worker holds claims."""

    registry: Registry
    hosts: HostLimits
    store: ImageStore
    owner: str
    lease_s: float
    consoles: ConsoleThreads | None = None  #: None: this worker holds no consoles
    image_urls: Collection[str] = ()  #: allowed URL prefixes of image downloads
    lookup_deadline_s: float = 10.0  #: of the first call to a host, so that a hung one costs little
    piece_deadline_s: float = 20.0  #: of each piece of an upload
    upload_deadline_s: float = 3600.0  #: of all of them
    #: Bounds long uploads, as their threads are missing for builds and removals.
    upload_threads: BoundedSemaphore = field(default_factory=lambda: BoundedSemaphore(2))
    import_threads: BoundedSemaphore = field(default_factory=lambda: BoundedSemaphore(1))
    moves: MoveOptions = field(default_factory=MoveOptions)
    host_networks: HostNetworks = field(default_factory=HostNetworks)
    fence_command: Sequence[str] = ()  #: program and arguments
    fence_timeout_s: float = 60.0
    checkpoint: Callable[[str], None] = checkpoint
    stopping: Event = field(default_factory=Event)
    send: Callable[[Due], None] | None = None  #: sends work to a worker, maybe this one

    @property
    def upload_lease_s(self) -> float:
        """The lease of an upload, which is extended only after each piece."""
        return self.lease_s + self.piece_deadline_s

    def send_next_on_host(self, host_id: UUID) -> None:
        """Send the next work for a host that has just finished some.

        A host takes few builds at a time, and refused work waits for the sweep. Sends two, as one
        may be lost or refused again.
        """
        if self.send is None or self.stopping.is_set():
            return
        for due in self.registry.assignments.send_due_tasks(
            limit=2, resend_after_s=0, host_id=host_id
        ):
            self.send(due)

    def mark_next_moves_sent(self) -> None:
        """Send moves of VMs that are possible now that one has ended, between any hosts."""
        if self.send is None or self.stopping.is_set():
            return
        for due in self.registry.move_steps.mark_next_moves_sent(self.moves.limits):
            self.send(due)

    def extend_claim(self, claim: Claim) -> None:
        """Extend the claim on an assignment before the next step.

        Raises
        ------
        StoppingError
            If this process is stopping: the caller hands the work back.
        ClaimLostError
            If another worker took over.
        """
        if self.stopping.is_set():
            raise StoppingError
        self.registry.assignments.extend(claim, self.lease_s)

    def extend_leftover_claim(self, leftover: Leftover) -> None:
        """Extend the claim on a leftover domain or volume, or raise `ClaimLostError`."""
        if self.stopping.is_set():
            raise StoppingError
        self.registry.assignments.extend_leftover(leftover, self.lease_s)
