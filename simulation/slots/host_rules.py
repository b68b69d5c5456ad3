"""Which hosts each waiting request may use, and where the VMs of its groups are."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np

from placement import BoolArray, IntArray
from placement.model.constraints import AffinityGroup, Constraints, Spread
from placement.model.host_classes import HostClasses, eligibility, host_classes, preferred_classes
from registry.requests import rules_allow, zone_of
from simulation.checkpoint import CheckpointData, CheckpointSizes, MisfitError
from simulation.slots.cluster import Cluster
from simulation.slots.running_vms import VmRows
from simulation.slots.waiting_rows import WaitingRows
from simulation.topology.hosts import SimHost
from simulation.traces.request_constraints import RequestConstraints

#: A group of a tenant's: (tenant, name, whether it keeps apart, whether that is hard).
GroupKey = tuple[int, str, bool, bool]


@dataclass(frozen=True, slots=True, eq=False)
class SnapshotRules:
    """Host classes, eligibility and constraints of a simulated round's snapshot."""

    host_class: IntArray  #: (H,)
    eligible: BoolArray  #: (Q, C)
    constraints: Constraints | None


@dataclass(slots=True)
class _HostCounts:
    """The hosts of running VMs by VM group and by spread, with counts."""

    #: in order of creation, as the register center lists groups
    of_group: dict[GroupKey, Counter[int]] = field(default_factory=dict)
    of_spread: defaultdict[int, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))


class HostRules:
    """Keeps eligibility from slot to slot, and counts VMs of groups and spreads by host.

    Eligibility is recomputed where hosts changed, or other constraints wait than
    before: `placement.model.host_classes`, as rounds of the control centre do.
    """

    def __init__(self) -> None:
        self._places = _HostCounts()
        self._known: tuple[object, HostClasses, BoolArray] | None = None

    def add_groups(self, tenants: Sequence[int], tables: Sequence[RequestConstraints]) -> None:
        """Add the VM groups that new requests name."""
        for tenant, table in zip(tenants, tables, strict=True):
            for key in group_keys(tenant, table):
                self._places.of_group.setdefault(key, Counter())

    def count(self, vms: VmRows, tables: Sequence[RequestConstraints], *, sign: int) -> None:
        """Count VMs of groups and spreads on hosts when placed (sign 1) or gone (sign -1)."""
        ruled = np.array([table.is_ruled for table in tables], dtype=np.bool_)
        if not ruled.any():
            return
        for row in np.flatnonzero(ruled[vms.constraints]).tolist():
            host, count = int(vms.host[row]), sign * int(vms.count[row])
            table = tables[int(vms.constraints[row])]
            for key in group_keys(int(vms.tenant[row]), table):
                _add_to_count(self._places.of_group[key], host, count)
            if table.rules.spread is not None:
                request = int(vms.request[row])
                _add_to_count(self._places.of_spread[request], host, count)

    def state(self) -> CheckpointData:
        """Return the counts of groups' and spreads' VMs for a checkpoint."""
        return {
            "groups": [[*key, [*places.items()]] for key, places in self._places.of_group.items()],
            "spreads": [
                [request, [*places.items()]] for request, places in self._places.of_spread.items()
            ],
        }

    def restore(self, kept: CheckpointData, sizes: CheckpointSizes) -> None:
        """Restore the counts of groups' and spreads' VMs from a checkpoint."""
        self._places, self._known = _HostCounts(), None
        for tenant, name, apart, hard, places in kept["groups"]:
            if not (type(tenant) is int and isinstance(name, str)):
                raise MisfitError("a group has no tenant or no name")
            key = (tenant, name, bool(apart), bool(hard))
            self._places.of_group[key] = _read_counts(places, sizes.hosts)
        for request, places in kept["spreads"]:
            if type(request) is not int:
                raise MisfitError("a spread has no request")
            self._places.of_spread[request] = _read_counts(places, sizes.hosts)

    def groups(self) -> Sequence[tuple[GroupKey, Collection[int]]]:
        """Return the VM groups, in order of creation, and the hosts that hold VMs of each."""
        return [*self._places.of_group.items()]

    def snapshot_rules(
        self,
        waiting: WaitingRows,
        cluster: Cluster,
        tables: Sequence[RequestConstraints],
        of_running: IntArray | None = None,
    ) -> SnapshotRules:
        """Return the host classes, eligibility and constraints of a simulated round.

        Hosts of one class are alike to the constraints in ``of_running``, too.
        """
        keys, of_row = np.unique(waiting.constraints, return_inverse=True)
        if of_running is not None:
            keys = np.unique(np.concatenate([keys, of_running]))
            of_row = np.searchsorted(keys, waiting.constraints)
        key = (cluster.version, tuple(keys.tolist()))
        listed = [tables[number] for number in keys.tolist()]
        if self._known is None or self._known[0] != key:
            classes = host_classes(cluster.hosts, listed)
            self._known = (key, classes, eligibility(cluster.hosts, classes, listed, may_use))
        _, classes, eligible = self._known
        return SnapshotRules(
            host_class=classes.of_host,
            eligible=eligible[of_row.ravel()],
            constraints=self._constraints(waiting, cluster, tables, classes),
        )

    def _constraints(
        self,
        waiting: WaitingRows,
        cluster: Cluster,
        tables: Sequence[RequestConstraints],
        classes: HostClasses,
    ) -> Constraints | None:
        """Return the constraints of the waiting requests; None without any."""
        bound = np.array(
            [table.is_ruled or bool(table.rules.prefers) for table in tables], dtype=np.bool_
        )
        if not bound.any() or not bound[waiting.constraints].any():
            return None
        zones = sorted({zone for host in cluster.hosts if (zone := zone_of(host.labels))})
        members: dict[GroupKey, list[int]] = {}
        spreads: list[Spread] = []
        prefers: dict[int, tuple[str, ...]] = {}
        for row in np.flatnonzero(bound[waiting.constraints]).tolist():
            table = tables[int(waiting.constraints[row])]
            prefers[row] = table.rules.prefers
            for key in group_keys(int(waiting.tenant[row]), table):
                members.setdefault(key, []).append(row)
            if table.rules.spread is not None:
                spreads.append(self._spread(row, waiting, cluster, table, zones))
        constraints = Constraints(
            groups=tuple(
                AffinityGroup(
                    apart=key[2],
                    hard=key[3],
                    requests=tuple(members[key]),
                    hosts=cluster.positions_in_pool(list(places)),
                )
                for key, places in self._places.of_group.items()
                if key in members
            ),
            spreads=tuple(spreads),
            zones=_zone_numbers(cluster, zones) if spreads else (),
            preferred=preferred_classes(cluster.hosts, classes, prefers),
        )
        return constraints or None

    def _spread(
        self,
        row: int,
        waiting: WaitingRows,
        cluster: Cluster,
        table: RequestConstraints,
        zones: Sequence[str],
    ) -> Spread:
        """Return the spread of a waiting request, with its VMs in each zone."""
        its_own = {zone_of(host.labels) for host in cluster.hosts if may_use(table, host)}
        placed: Counter[str | None] = Counter()
        for host, count in self._places.of_spread[int(waiting.request[row])].items():
            placed[zone_of(cluster.all_hosts()[host].labels)] += count
        wanted = int(waiting.wanted[row])
        return Spread(
            request=row,
            maximum=-(-wanted // len(its_own)) if its_own else 0,
            placed=tuple(placed[zone] if zone in its_own else 0 for zone in zones),
        )


def group_keys(tenant: int, table: RequestConstraints) -> list[GroupKey]:
    """Return the keys of the VM groups that a tenant's VMs with these constraints are in."""
    return [(tenant, rule.group, apart, not rule.soft) for apart, rule in table.memberships]


def _read_counts(places: Sequence[Sequence[int]], hosts: int) -> Counter[int]:
    """Read the counts of a group's VMs by host from a checkpoint."""
    counted: Counter[int] = Counter()
    for host, count in places:
        if type(host) is not int or type(count) is not int or not 0 <= host < hosts:
            raise MisfitError("a host that is not there holds VMs of a group")
        counted[host] = count
    return counted


def _add_to_count(places: Counter[int], host: int, count: int) -> None:
    """Add VMs to a host's count; drop a count of 0."""
    places[host] += count
    if not places[host]:
        del places[host]


def _zone_numbers(cluster: Cluster, names: Sequence[str]) -> tuple[int, ...]:
    """Return the number of each host's zone, -1 for none."""
    place = {name: index for index, name in enumerate(names)}
    return tuple(place.get(zone_of(host.labels) or "", -1) for host in cluster.hosts)


def may_use(table: RequestConstraints, host: SimHost) -> bool:
    """Return whether a request may use a host, by the rules of the register center."""
    return rules_allow(table.rules, table.requires, table.hosts, host=host.name, labels=host.labels)
