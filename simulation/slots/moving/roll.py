"""Roll through hosts in a simulation: empty a batch, wait while it is busy, go on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from placement.rebalancing.model import MovePlan
from simulation.checkpoint import CheckpointData, MisfitError
from simulation.slots.cluster import Cluster
from simulation.slots.moving.movable_vms import MovableVms
from simulation.slots.moving.move_options import RollOptions
from simulation.topology.hosts import SimHost


@dataclass(slots=True)
class _ClosedHost:
    """A host of a simulated roll's current batch."""

    since_s: float
    took_vms: bool  #: before the roll closed it
    busy_until_s: float | None = None  #: None: it is being emptied
    emptied_s: float | None = None  #: when the last move away was over
    stays: list[str] = field(default_factory=list)  #: why VMs had no place, at the last try


class RollState:
    """The state of a simulated roll over hosts.

    A batch of hosts takes no VMs while one plan empties all of them; an empty host is busy for
    ``takes_s`` and takes VMs again. VMs without a place are tried again at each slot; a host
    that is not empty after ``wait_s`` is skipped, and reported with the reasons.
    """

    def __init__(self, roll: RollOptions, cluster: Cluster) -> None:
        self._roll, self._cluster = roll, cluster
        self.todo: list[int] = matching_hosts(roll.hosts, cluster.all_hosts())
        self._at: dict[int, _ClosedHost] = {}
        self.began_s: float | None = None
        self.over_s: float | None = None  #: None: it has not come to its end
        self.rolled = 0
        self.skipped: list[dict[str, Any]] = []

    @property
    def is_over(self) -> bool:
        """Whether the roll has gone through all its hosts."""
        return self.over_s is not None

    def reopen(self, at_s: float) -> None:
        """Let hosts take VMs again if their time in the roll is over by ``at_s``."""
        for host, its in list(self._at.items()):
            if its.busy_until_s is not None and its.busy_until_s <= at_s:
                self._finish_host(host)
                self.rolled += 1
                self._end_if_done(its.busy_until_s)

    def record_departure(self, host: int, at_s: float) -> None:
        """Record that the roll moved a VM off a host."""
        if host in self._at:
            self._at[host].emptied_s = at_s

    def record_loss(self, host: int, at_s: float) -> None:
        """Record that a host of the roll has failed or left."""
        if host in self._at:
            del self._at[host]
            self._skip_host(host, ["it failed or left"], at_s)

    def next_batch(self, at_s: float, on_hosts: Sequence[int]) -> list[int]:
        """Return the hosts that the roll empties now.

        Parameters
        ----------
        on_hosts : sequence of int
            How many VMs run on each host of the cluster.
        """
        if self.is_over or at_s < self._roll.at_s:
            return []
        self.began_s = at_s if self.began_s is None else self.began_s
        for host, its in list(self._at.items()):
            if its.busy_until_s is None and not on_hosts[host]:
                emptied_s = at_s if its.emptied_s is None else its.emptied_s
                its.busy_until_s = emptied_s + self._roll.takes_s
            elif its.busy_until_s is None and at_s - its.since_s > self._roll.wait_s:
                self._finish_host(host)
                self._skip_host(host, its.stays, at_s)
        self.reopen(at_s)
        while not self._at and self.todo:
            batch, self.todo = self.todo[: self._roll.at_once], self.todo[self._roll.at_once :]
            for host in batch:
                if not self._cluster.present[host]:
                    self._skip_host(host, ["it is not there"], at_s)
                    continue
                took_vms = self._cluster.all_hosts()[host].accepts
                self._cluster.set_accepting({host: False})
                empty = not on_hosts[host]
                until_s = at_s + self._roll.takes_s if empty else None
                self._at[host] = _ClosedHost(at_s, took_vms, until_s)
        self._end_if_done(at_s)
        return [host for host, its in self._at.items() if its.busy_until_s is None]

    def record_plan(self, plan: MovePlan, fleet: MovableVms) -> None:
        """Record the VMs that an evacuation plan leaves on hosts of the roll, with the reasons."""
        for its in self._at.values():
            its.stays = []
        for each in plan.stays:
            key = fleet.key(each.vm)
            why = each.why.value if each.obstacle is None else each.obstacle.value
            if key.host in self._at:
                self._at[key.host].stays.append(f"a VM of request {key.request}: {why}")

    def report(self) -> dict[str, Any]:
        """Return the progress of the roll as JSON values."""
        took = None
        if self.over_s is not None and self.began_s is not None:
            took = self.over_s - self.began_s
        return {
            "rolled": self.rolled,
            "took_s": took,
            "hosts_left": len(self.todo) + len(self._at),
            "left_out": self.skipped,
        }

    def _finish_host(self, host: int) -> None:
        """Take a host out of the roll; it takes VMs again if it did before."""
        its = self._at.pop(host)
        self._cluster.set_accepting({host: its.took_vms})

    def _skip_host(self, host: int, why: Sequence[str], at_s: float) -> None:
        """Skip a host of the roll, and record why."""
        name = self._cluster.all_hosts()[host].name
        self.skipped.append({"host": name, "why": [*why]})
        self._end_if_done(at_s)

    def _end_if_done(self, at_s: float) -> None:
        """End the roll if no host is left."""
        if not self.todo and not self._at and self.began_s is not None and self.over_s is None:
            self.over_s = at_s

    def state(self) -> CheckpointData:
        """Return the state of the roll for a checkpoint."""
        return {
            "todo": self.todo,
            "at": [[host, asdict(its)] for host, its in self._at.items()],
            "began_s": self.began_s,
            "over_s": self.over_s,
            "rolled": self.rolled,
            "left_out": self.skipped,
        }

    def restore(self, kept: CheckpointData) -> None:
        """Restore the state of the roll from a checkpoint."""
        hosts = len(self._cluster.capacity)
        self.todo = [int(host) for host in kept["todo"]]
        self._at = {int(host): _ClosedHost(**its) for host, its in kept["at"]}
        if not all(0 <= host < hosts for host in (*self.todo, *self._at)):
            raise MisfitError("a roll is at a host that is not there")
        self.began_s, self.over_s = kept["began_s"], kept["over_s"]
        self.rolled, self.skipped = int(kept["rolled"]), [*kept["left_out"]]


def matching_hosts(words: str, hosts: Sequence[SimHost]) -> list[int]:
    """Return the hosts of a roll by names, patterns or one label, in order of name."""
    found = set()
    for word in filter(None, words.split(";")):
        label = word.removeprefix("label=")
        for number, host in enumerate(hosts):
            if label in host.labels if label != word else fnmatchcase(host.name, word):
                found.add(number)
    return sorted(found)
