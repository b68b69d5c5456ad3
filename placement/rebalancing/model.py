"""The input and output of planners: running state, limits and move plans."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Any, Final

import numpy as np

from placement.errors import RunningError, ShapeMismatchError
from placement.model.arrays import BoolArray, IntArray
from placement.model.snapshot import Reason, Snapshot


class Mobility(IntEnum):
    """How a VM can move."""

    LIVE = 0  #: while its guest runs
    COLD = 1  #: while it is off
    NEVER = 2  #: not at all: see its obstacle


class RebalanceObstacle(StrEnum):
    """Why a VM cannot move."""

    LABEL = "label"  #: its label says `moves=never`
    HOST_DEVICE = "host_device"  #: it uses a device of its host
    LOCAL_POOL = "local_pool"  #: its pool is local, on a hypervisor that copies no storage
    MOVING = "moving"  #: it moves already
    UNSETTLED = "unsettled"  #: it is being built, switched or deleted
    HOST_SILENT = "host_silent"  #: its host does not answer
    LOCAL_VOLUME = "local_volume"  #: it has volumes, which stay in their pool


#: `RunningState.obstacle` holds places in this.
OBSTACLES: Final = tuple(RebalanceObstacle)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningGroup:
    """VMs that keep apart, or keep together."""

    apart: bool  #: True: one VM of the group on a host at most; False: all on one host
    hard: bool  #: False: only as far as there is room for it
    vms: tuple[int, ...]  #: its members, indices of V
    requests: tuple[int, ...] = ()  #: its members that wait, indices of Q
    #: hosts that hold VMs of it which are not in V, or hold them too: what moves already
    hosts: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningSpread:
    """VMs of one request, which are spread over zones."""

    maximum: int  #: VMs of it in one zone, at most
    vms: tuple[int, ...]  #: indices of V
    request: int | None = None  #: the rest of it that waits, an index of Q
    others: tuple[int, ...] = ()  #: VMs of it in each zone that are not in V; empty for none


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class RunningState:
    """A snapshot and the VMs that run on its hosts. The planner owns these arrays.

    Axes: V VMs, K kinds of VM (alike in demand and eligibility), and those of the
    snapshot: H hosts, C host classes, N tenants, R resources, Q requests that wait.
    The snapshot's constraints speak of its requests; those of VMs stand here.
    """

    snapshot: Snapshot
    kind: IntArray  #: (V,) an index of K
    host: IntArray  #: (V,) where it is, an index of H
    tenant: IntArray  #: (V,) whose it is, an index of N
    transfer_mib: IntArray  #: (V,) memory that a move of it carries; 0 where it carries none
    mobility: IntArray  #: (V,) values of `Mobility`
    obstacle: IntArray  #: (V,) an index of `OBSTACLES` for a VM that never moves, else -1
    rests: BoolArray  #: (V,) did it move lately, or was that refused? Then it moves for need alone
    demand: IntArray  #: (K, R)
    #: (K, C) may it be on hosts of that class, whether or not they take VMs now?
    eligible: BoolArray
    receives: BoolArray  #: (H,) does it take VMs? Not if it drains or is down
    #: (H, R) what is committed above the capacity; nothing is free of that resource then
    over: IntArray
    groups: tuple[RunningGroup, ...] = ()
    spreads: tuple[RunningSpread, ...] = ()
    #: (H,) zone of each host, -1 for none; empty where nothing is spread
    zones: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    def __post_init__(self) -> None:
        hosts, resources = self.snapshot.capacity.shape
        vms, kinds = len(self.kind), len(self.demand)
        expected = {
            "host": (vms,),
            "tenant": (vms,),
            "transfer_mib": (vms,),
            "mobility": (vms,),
            "obstacle": (vms,),
            "rests": (vms,),
            "demand": (kinds, resources),
            "eligible": (kinds, self.snapshot.eligible.shape[1]),
            "receives": (hosts,),
            "over": (hosts, resources),
            "zones": (hosts,) if self.spreads or len(self.zones) else (0,),
        }
        for name, shape in expected.items():
            found = getattr(self, name).shape
            if found != shape:
                raise ShapeMismatchError(name, found, shape)
        self._check_indices(
            kind=kinds, host=hosts, tenant=len(self.snapshot.weight), mobility=len(Mobility)
        )
        never = self.mobility == Mobility.NEVER
        if ((self.obstacle >= 0) != never).any() or (self.obstacle >= len(OBSTACLES)).any():
            raise RunningError("obstacle", "another", "one for each VM that never moves, else -1")
        if (self.transfer_mib < 0).any() or (self.over < 0).any() or (self.demand < 0).any():
            raise RunningError("transfer_mib, over, demand", "below 0", "at least 0")
        if ((self.over > 0) & (self.snapshot.free > 0)).any():
            raise RunningError("over", "above 0 where something is free", "0 there")
        self._check_committed()
        self._check_rules(vms, hosts)
        for each in dataclasses.fields(self):
            value = getattr(self, each.name)
            if isinstance(value, np.ndarray):
                value.setflags(write=False)

    def __len__(self) -> int:
        return len(self.kind)

    @property
    def room(self) -> IntArray:
        """The room of each host, (H, R); negative where more is committed than it has."""
        room: IntArray = self.snapshot.free - self.over
        return room

    @property
    def movable(self) -> BoolArray:
        """Whether each VM can move at all, (V,)."""
        movable: BoolArray = self.mobility != Mobility.NEVER
        return movable

    def vms_on(self, hosts: Sequence[int] | IntArray) -> IntArray:
        """Return the VMs on some hosts, (X,), ascending."""
        there = np.zeros(len(self.receives), dtype=np.bool_)
        there[np.asarray(hosts, dtype=np.int64)] = True
        return np.flatnonzero(there[self.host]).astype(np.int64)

    def with_closed_hosts(self, hosts: Sequence[int] | IntArray) -> RunningState:
        """Return the state in which hosts, (X,), receive no more VMs."""
        receives = self.receives.copy()
        receives[np.asarray(hosts, dtype=np.int64)] = False
        return dataclasses.replace(self, receives=receives)

    def after_moves(self, moves: Sequence[RebalanceMove]) -> RunningState:
        """Return the running state after all moves of a plan; moved VMs rest."""
        host, rests, room = self.host.copy(), self.rests.copy(), self.room.copy()
        for move in moves:
            demand = self.demand[self.kind[move.vm]]
            room[move.source] += demand
            room[move.destination] -= demand
            host[move.vm], rests[move.vm] = move.destination, True
        snapshot = dataclasses.replace(self.snapshot, free=np.maximum(room, 0))
        return dataclasses.replace(
            self, snapshot=snapshot, host=host, rests=rests, over=np.maximum(-room, 0)
        )

    def _check_indices(self, **sizes: int) -> None:
        """Raise `RunningError` if an array has an index that is not below its axis's size."""
        for name, size in sizes.items():
            values: IntArray = getattr(self, name)
            if len(values) and not 0 <= int(values.min()) <= int(values.max()) < size:
                raise RunningError(name, f"{values.min()} to {values.max()}", f"0 to {size - 1}")

    def _check_committed(self) -> None:
        """Raise `RunningError` if the VMs of a host hold more than is committed there."""
        committed = self.snapshot.capacity - self.room
        on_host = np.zeros_like(committed)
        # Column by column numpy adds ten times as fast.
        for resource in range(on_host.shape[1]):
            column = np.zeros(len(on_host), dtype=np.int64)
            np.add.at(column, self.host, self.demand[self.kind, resource])
            on_host[:, resource] = column
        short = np.flatnonzero((on_host > committed).any(axis=1))
        if len(short):
            host = int(short[0])
            raise RunningError(
                f"host {host}",
                f"VMs of {on_host[host].tolist()}",
                f"what is committed there, {committed[host].tolist()}",
            )

    def _check_rules(self, vms: int, hosts: int) -> None:
        """Raise `RunningError` for an index of a group or spread that does not exist."""
        requests = len(self.snapshot.count)
        for group in self.groups:
            _check_index_range("groups.vms", group.vms, vms)
            _check_index_range("groups.requests", group.requests, requests)
            _check_index_range("groups.hosts", group.hosts, hosts)
        zones = int(self.zones.max(initial=-1)) + 1
        if len(self.zones) and int(self.zones.min()) < -1:
            raise RunningError("zones", int(self.zones.min()), "at least -1")
        for spread in self.spreads:
            _check_index_range("spreads.vms", spread.vms, vms)
            _check_index_range(
                "spreads.request", () if spread.request is None else (spread.request,), requests
            )
            if spread.others and len(spread.others) < zones:
                raise RunningError("spreads.others", len(spread.others), f"0 or {zones}, of zones")

    def document(self) -> dict[str, Any]:
        """Return the running VMs as JSON values, without the snapshot; see `from_document`."""
        arrays = {_STORED_AS.get(name, name): getattr(self, name).tolist() for name in _DTYPES}
        groups = [
            [each.apart, each.hard, list(each.vms), list(each.requests), list(each.hosts)]
            for each in self.groups
        ]
        spreads = [
            [each.maximum, list(each.vms), each.request, list(each.others)] for each in self.spreads
        ]
        return {**arrays, "groups": groups, "spreads": spreads}

    @classmethod
    def from_document(cls, document: Mapping[str, Any], snapshot: Snapshot) -> RunningState:
        """Build the running state from the JSON values that `document` returned."""
        arrays: dict[str, Any] = {
            name: np.array(document[_STORED_AS.get(name, name)], dtype=dtype)
            for name, dtype in _DTYPES.items()
        }
        # JSON loses the shape of an array in which one axis is empty.
        resources, classes = len(snapshot.resources), snapshot.eligible.shape[1]
        arrays["demand"] = arrays["demand"].reshape(-1, resources)
        arrays["eligible"] = arrays["eligible"].reshape(len(arrays["demand"]), classes)
        arrays["over"] = arrays["over"].reshape(-1, resources)
        return cls(
            snapshot=snapshot,
            groups=tuple(
                RunningGroup(
                    apart=apart,
                    hard=hard,
                    vms=tuple(vms),
                    requests=tuple(requests),
                    hosts=tuple(hosts),
                )
                for apart, hard, vms, requests, hosts in document["groups"]
            ),
            spreads=tuple(
                RunningSpread(
                    maximum=maximum, vms=tuple(vms), request=request, others=tuple(others)
                )
                for maximum, vms, request, others in document["spreads"]
            ),
            **arrays,
        )


#: Keys of stored documents that differ from the fields' names: old plans and rounds have them.
_STORED_AS: Final = {"transfer_mib": "carried_mib", "admitted": "let_in"}
_DTYPES: Final[Mapping[str, Any]] = {
    "kind": np.int64,
    "host": np.int64,
    "tenant": np.int64,
    "transfer_mib": np.int64,
    "mobility": np.int64,
    "obstacle": np.int64,
    "rests": np.bool_,
    "demand": np.int64,
    "eligible": np.bool_,
    "receives": np.bool_,
    "over": np.int64,
    "zones": np.int64,
}


def _check_index_range(name: str, found: tuple[int, ...], size: int) -> None:
    """Raise `RunningError` for an index that is not below ``size``, or stands twice."""
    for index in found:
        if not 0 <= index < size:
            raise RunningError(name, index, f"0 to {size - 1}")
    if len(set(found)) < len(found):
        raise RunningError(name, list(found), "each once")


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalanceLimits:
    """Limits on the number of simultaneous moves, each at least 1."""

    per_source: int = 2  #: away from one host
    per_destination: int = 2  #: to one host
    at_once: int = 20  #: in the whole site

    def __post_init__(self) -> None:
        for each in dataclasses.fields(self):
            if getattr(self, each.name) < 1:
                raise RunningError(f"limits.{each.name}", getattr(self, each.name), "at least 1")


class MoveReason(StrEnum):
    """The purpose of a move."""

    EVACUATES = "evacuates"  #: its host is to be empty
    REPAIRS_CAPACITY = "mends_capacity"  #: its host has more committed than it has
    REPAIRS_RULE = "mends_rule"  #: where it is, it breaks a hard rule
    MAKES_ROOM = "makes_room"  #: for what waits
    BALANCES = "balances"  #: the potential rises by more than the move costs
    PACKS = "packs"  #: empties a host
    DETOUR = "detour"  #: to a third host, since no VM of a cycle can go first; it goes on later


class StayReason(StrEnum):
    """Why a VM that should move has no destination."""

    OBSTACLE = "obstacle"  #: it cannot move: see `StayingVm.obstacle`
    NO_ELIGIBLE_HOST = "no_eligible_host"  #: no other host that it may use takes VMs now
    NO_HOST_LARGE_ENOUGH = "no_host_large_enough"  #: not even an empty one
    ANTI_AFFINITY = "anti_affinity"  #: hosts with room hold a VM of its group
    AFFINITY = "affinity"  #: no host has room for its whole group, or some of it cannot move
    ZONE_FULL = "zone_full"  #: zones with room have their part of its VMs
    NO_ROOM = "no_room"  #: eligible hosts are too full
    LIMITS = "limits"  #: what must move with it is more than may move at once
    NO_ORDER = "no_order"  #: it has a destination, but no order of moves leads there
    CUT = "cut"  #: the budget was spent before its turn


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingRoom:
    """What the host that lacks least lacks for a VM."""

    host: int
    amounts: tuple[int, ...]  #: (R,) beyond what is free there once all moves are over


@dataclass(frozen=True, slots=True, kw_only=True)
class StayingVm:
    """A VM that should move but has no destination."""

    vm: int
    why: StayReason
    obstacle: RebalanceObstacle | None = None
    missing: MissingRoom | None = None  #: None where room would not help


@dataclass(frozen=True, slots=True, kw_only=True)
class UnplacedVms:
    """VMs of a request for which no moves make room."""

    request: int
    count: int
    reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalanceMove:
    """The move of one VM from its host to another."""

    vm: int
    source: int
    destination: int
    wave: int  #: from 0; moves of one wave go on at once, the next begins when all are over
    why: MoveReason
    live: bool  #: while its guest runs
    transfer_mib: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Measures:
    """A state of the cluster in numbers: fairness, skewness, hosts in use."""

    potential: float  #: v(A) minus the sum of skewness, as in FUGA
    fairness_distance: float | None  #: see `placement.fairness.shares.fair_distance`
    mean_skewness: float  #: over hosts in use, 0.0 without any
    hosts_in_use: int  #: on which anything is committed
    moved_gib: float  #: that the moves so far carried


@dataclass(frozen=True, slots=True, kw_only=True)
class MovePlan:
    """Moves in the order of their waves, with reasons and measures.

    ``measures`` holds one more than there are moves: before the first, and after
    each.
    """

    policy: str  #: what decided it: evacuate, repair, room, balance, pack
    parameters: Mapping[str, Any]  #: JSON values
    seed: int
    limits: RebalanceLimits
    moves: tuple[RebalanceMove, ...]
    measures: tuple[Measures, ...]
    closed: tuple[int, ...] = ()  #: hosts that the plan itself lets nothing onto
    stays: tuple[StayingVm, ...] = ()  #: ascending by VM
    #: rows of (request, host, count) for which room is once all moves are over
    admitted: tuple[tuple[int, int, int], ...] = ()
    still_waits: tuple[UnplacedVms, ...] = ()
    work: int = 0  #: units of the budget that were spent
    cut: bool = False  #: did the budget cut the search?
    details: Mapping[str, Any] = field(default_factory=dict)  #: JSON values only

    @property
    def measures_before(self) -> Measures:
        """The measures of the cluster as it is."""
        return self.measures[0]

    @property
    def measures_after(self) -> Measures:
        """The measures of the cluster once all moves are over."""
        return self.measures[-1]

    @property
    def waves(self) -> tuple[tuple[RebalanceMove, ...], ...]:
        """The moves of each wave of the plan."""
        waves: list[list[RebalanceMove]] = [
            [] for _ in range(max((m.wave for m in self.moves), default=-1) + 1)
        ]
        for move in self.moves:
            waves[move.wave].append(move)
        return tuple(tuple(wave) for wave in waves)

    def document(self) -> dict[str, Any]:
        """Return the plan as JSON values, which `from_document` reads back."""
        return {
            "policy": self.policy,
            "parameters": dict(self.parameters),
            "seed": self.seed,
            "limits": dataclasses.asdict(self.limits),
            "moves": [
                [m.vm, m.source, m.destination, m.wave, m.why.value, m.live, m.transfer_mib]
                for m in self.moves
            ],
            "measures": [list(dataclasses.astuple(each)) for each in self.measures],
            "closed": list(self.closed),
            "stays": [
                [
                    each.vm,
                    each.why.value,
                    each.obstacle and each.obstacle.value,
                    each.missing and [each.missing.host, list(each.missing.amounts)],
                ]
                for each in self.stays
            ],
            _STORED_AS["admitted"]: [list(row) for row in self.admitted],
            "still_waits": [[w.request, w.count, w.reason.value] for w in self.still_waits],
            "work": self.work,
            "cut": self.cut,
            "details": dict(self.details),
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> MovePlan:
        """Build the plan from the JSON values that `document` returned."""
        return cls(
            policy=document["policy"],
            parameters=document["parameters"],
            seed=document["seed"],
            limits=RebalanceLimits(**document["limits"]),
            moves=tuple(
                RebalanceMove(
                    vm=vm,
                    source=source,
                    destination=destination,
                    wave=wave,
                    why=MoveReason(why),
                    live=live,
                    transfer_mib=transfer_mib,
                )
                for vm, source, destination, wave, why, live, transfer_mib in document["moves"]
            ),
            measures=tuple(
                Measures(**dict(zip(_MEASURES, each, strict=True))) for each in document["measures"]
            ),
            closed=tuple(document["closed"]),
            stays=tuple(
                StayingVm(
                    vm=vm,
                    why=StayReason(why),
                    obstacle=None if obstacle is None else RebalanceObstacle(obstacle),
                    missing=missing and MissingRoom(host=missing[0], amounts=tuple(missing[1])),
                )
                for vm, why, obstacle, missing in document["stays"]
            ),
            admitted=tuple(
                (request, host, count) for request, host, count in document[_STORED_AS["admitted"]]
            ),
            still_waits=tuple(
                UnplacedVms(request=request, count=count, reason=Reason(reason))
                for request, count, reason in document["still_waits"]
            ),
            work=document["work"],
            cut=document["cut"],
            details=document["details"],
        )


_MEASURES: Final = tuple(each.name for each in dataclasses.fields(Measures))
