"""The input and output of a round: snapshot arrays in, allocation rows out."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np

from placement.errors import GangTooLargeError, QuantityTooLargeError, ShapeMismatchError
from placement.model.arrays import BoolArray, FloatArray, IntArray
from placement.model.budget import Budget
from placement.model.constraints import Constraints

if TYPE_CHECKING:
    from placement.model.memory import HoldingMemory
    from placement.model.tenant_tree import TenantTree


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Spot:
    """Requests for spot VMs, and the spot VMs that run.

    Axes: Q requests, R resources, S spot VMs on hosts, by when they were placed.
    """

    asks: BoolArray  #: (Q,) whether it requests spot VMs
    host: IntArray  #: (S,) an index of H
    tenant: IntArray  #: (S,) an index of N
    amounts: IntArray  #: (S, R) that it holds
    #: (S,) may a round end it? Not if it ends or moves already, nor on a host that is overfull
    may_end: BoolArray
    #: rows of request, host, count: the room that spot VMs leave, or left, for a request
    kept: tuple[tuple[int, int, int], ...] = ()
    #: thousandths of each resource that new spot VMs leave free, so that ordinary VMs start at once
    margin: int = 0

    def __post_init__(self) -> None:
        for each in (self.asks, self.host, self.tenant, self.amounts, self.may_end):
            each.setflags(write=False)

    def held(self, tenants: int) -> IntArray:
        """Return the amounts that each tenant's spot VMs hold, (N, R)."""
        held = np.zeros((tenants, self.amounts.shape[1]), dtype=np.int64)
        np.add.at(held, self.tenant, self.amounts)
        return held

    def document(self) -> dict[str, Any]:
        """Return the spot VMs as JSON values, which `from_document` reads back."""
        margin = {"margin": self.margin} if self.margin else {}
        return {**_array_lists(self), "kept": list(map(list, self.kept)), **margin}

    @classmethod
    def from_document(cls, document: Mapping[str, Any], resources: int) -> Spot:
        """Build the spot VMs from the JSON values that `document` returned."""
        return cls(
            asks=np.array(document["asks"], dtype=np.bool_),
            host=np.array(document["host"], dtype=np.int64),
            tenant=np.array(document["tenant"], dtype=np.int64),
            amounts=np.array(document["amounts"], dtype=np.int64).reshape(-1, resources),
            may_end=np.array(document["may_end"], dtype=np.bool_),
            kept=tuple((request, host, count) for request, host, count in document["kept"]),
            margin=document.get("margin", 0),
        )


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Borrowed:
    """Requests for borrowed VMs, and the borrowed VMs that run. They count in the share.

    Axes: Q requests, R resources, B borrowed VMs on hosts, by when they were placed.
    """

    asks: BoolArray  #: (Q,) whether it requests borrowed VMs
    host: IntArray  #: (B,) an index of H
    tenant: IntArray  #: (B,) an index of N
    request: IntArray  #: (B,) VMs of one request, which are alike, have the same number
    amounts: IntArray  #: (B, R) that it holds
    #: (B,) may a round end it? Not if it ends or moves already, nor on a host that is overfull
    may_end: BoolArray
    ending: BoolArray  #: (B,) does it end already? Then the tenant does not keep it

    def __post_init__(self) -> None:
        for each in dataclasses.fields(self):
            getattr(self, each.name).setflags(write=False)

    def document(self) -> dict[str, Any]:
        """Return the borrowed VMs as JSON values, which `from_document` reads back."""
        return _array_lists(self)

    @classmethod
    def from_document(cls, document: Mapping[str, Any], resources: int) -> Borrowed:
        """Build the borrowed VMs from the JSON values that `document` returned."""
        flags = {"asks", "may_end", "ending"}
        arrays: dict[str, Any] = {
            name: np.array(values, dtype=np.bool_ if name in flags else np.int64)
            for name, values in document.items()
        }
        return cls(**{**arrays, "amounts": arrays["amounts"].reshape(-1, resources)})


def _array_lists(value: Spot | Borrowed) -> dict[str, Any]:
    """Return the arrays among the fields of a value as lists, by name."""
    return {
        field.name: array.tolist()
        for field in dataclasses.fields(value)
        if isinstance(array := getattr(value, field.name), np.ndarray)
    }


#: What hosts offer, or tenants hold, of a resource in all: sums of two fit in int64.
LARGEST_TOTAL: Final = 2**62


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaHeadroom:
    """What a quota leaves: how much more of one resource some tenants may get together."""

    tenants: tuple[int, ...]  #: indices of N
    resource: int | None  #: an index of R; None: the number of VMs
    room: int  #: at least 0

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> QuotaHeadroom:
        """Build the headroom from JSON values that `dataclasses.asdict` returned."""
        return cls(**{**document, "tenants": tuple(document["tenants"])})

    def reduced_by(self, vms: IntArray, amounts: IntArray) -> QuotaHeadroom:
        """Return what a quota leaves after tenants got VMs, shape (N,), of amounts, (N, R)."""
        of_each = vms if self.resource is None else amounts[:, self.resource]
        left = self.room - int(of_each[[*self.tenants]].sum())
        return dataclasses.replace(self, room=max(0, left))


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Snapshot:
    """The cluster as one round sees it. The round owns these arrays.

    Axes: H hosts in order of name, C host classes, Q requests in order of
    creation, N tenants, R resources. Quantities are integers.
    """

    resources: tuple[str, ...]  #: names of the resource axis R
    capacity: IntArray  #: (H, R) what each host offers; the pool is its sum over H
    free: IntArray  #: (H, R) the part no assignment has committed, never below 0
    host_class: IntArray  #: (H,) hosts of one class are alike in everything but size
    eligible: BoolArray  #: (Q, C) may this request use hosts of that class?
    demand: IntArray  #: (Q, R) one VM of each request
    count: IntArray  #: (Q,) VMs wanted and not yet placed
    min_count: (
        IntArray  #: (Q,) at least that many at once, or none (1: any number); at most count, if any
    )
    tenant: IntArray  #: (Q,) tenant of each request, an index of N
    age: IntArray  #: (Q,) rounds that the request has waited already
    weight: FloatArray  #: (N,) of each tenant, above 0
    held: IntArray  #: (N, R) what each tenant's assignments hold already
    tree: TenantTree | None = None  #: over N; None: tenants are all children of the root
    constraints: Constraints | None = (
        None  #: see `placement.constraints.constrained_policy`; policies see None
    )
    #: see `placement.constraints.allowances_policy`; policies see none
    allowances: tuple[QuotaHeadroom, ...] = ()
    #: (Q,) among requests of one tenant; see `placement.model.priorities`; policies see None
    priority: IntArray | None = None
    spot: Spot | None = None  #: see `placement.model.spot_pass`; policies see None
    #: see `placement.fairness.memory`; policies see None
    memory: HoldingMemory | None = None
    borrowed: Borrowed | None = None  #: see `placement.model.spot_pass`; policies see None
    #: number of limits, at the end of R: they bound VMs and count in no share
    limits: int = 0
    #: (R,) capacity of all hosts together: shares are taken of it; 0 of a limit
    pool: IntArray = field(init=False)

    def __post_init__(self) -> None:
        # Used thousands of times a round.
        pool = self.capacity.sum(axis=0, dtype=np.int64)
        pool[self.resource_count :] = 0
        object.__setattr__(self, "pool", pool)
        hosts, resources = self.capacity.shape
        requests, tenants = len(self.count), len(self.weight)
        classes = self.eligible.shape[1]
        expected = {
            "capacity": (hosts, len(self.resources)),
            "free": (hosts, resources),
            "host_class": (hosts,),
            "eligible": (requests, classes),
            "demand": (requests, resources),
            "min_count": (requests,),
            "tenant": (requests,),
            "age": (requests,),
            "held": (tenants, resources),
        }
        if self.priority is not None:
            expected["priority"] = (requests,)
        self._check_asks(requests)
        for name, shape in expected.items():
            found = getattr(self, name).shape
            if found != shape:
                raise ShapeMismatchError(name, found, shape)
        if self.memory is not None and len(self.memory.past) != tenants:
            raise ShapeMismatchError("memory.past", (len(self.memory.past),), (tenants,))
        if self.constraints is not None:
            self.constraints.check(requests=requests, hosts=hosts, classes=classes)
        for amounts in (self.capacity, self.held):
            totals = amounts.sum(axis=0, dtype=np.float64)
            for name, total in zip(self.resources, totals.tolist(), strict=True):
                if total > LARGEST_TOTAL:
                    raise QuantityTooLargeError(name, total, LARGEST_TOTAL)
        too_large = np.flatnonzero((self.count > 0) & (self.min_count > self.count))
        if len(too_large):
            gang = int(too_large[0])
            raise GangTooLargeError(gang, int(self.min_count[gang]), int(self.count[gang]))
        for each in dataclasses.fields(self):
            value = getattr(self, each.name)
            if isinstance(value, np.ndarray):
                value.setflags(write=False)

    def _check_asks(self, requests: int) -> None:
        """Raise `ShapeMismatchError` unless spot and borrowed VMs are of these requests."""
        for name, last in (("spot", self.spot), ("borrowed", self.borrowed)):
            if last is not None and last.asks.shape != (requests,):
                raise ShapeMismatchError(f"{name}.asks", last.asks.shape, (requests,))

    def after_placing(self, placed: IntArray) -> Snapshot:
        """Return the snapshot once rows of (request, host, count), shape (P, 3), are placed.

        Spot VMs count for quotas, and are no part of what tenants hold.
        """
        requests, hosts, counts = placed.T
        amounts = counts[:, None] * self.demand[requests]
        free, count, min_count = self.free.copy(), self.count.copy(), self.min_count.copy()
        np.subtract.at(free, hosts, amounts)
        np.subtract.at(count, requests, counts)
        min_count[requests] = 1  # it binds only the first that places the request
        vms, given = np.zeros(len(self.weight), dtype=np.int64), np.zeros_like(self.held)
        np.add.at(vms, self.tenant[requests], counts)
        np.add.at(given, self.tenant[requests], amounts)
        held = given
        if self.spot is not None:
            shared = ~self.spot.asks[requests]
            held = np.zeros_like(given)
            np.add.at(held, self.tenant[requests[shared]], amounts[shared])
        return dataclasses.replace(
            self,
            free=free,
            held=self.held + held,
            count=count,
            min_count=min_count,
            allowances=tuple(each.reduced_by(vms, given) for each in self.allowances),
        )

    @property
    def resource_count(self) -> int:
        """The number of resources; the columns of R after them are limits, not resources."""
        return len(self.resources) - self.limits


class Reason(StrEnum):
    """Why VMs of a request were left out."""

    NO_HOST_LARGE_ENOUGH = "no_host_large_enough"  #: not even on an empty host
    NO_ELIGIBLE_HOST = "no_eligible_host"  #: no host that it may use takes VMs now
    NO_ROOM = "no_room"  #: eligible hosts are too full
    ABOVE_OVERLOAD = "above_overload"  #: room is there, but above the overload threshold
    NO_SLOTS = "no_slots"  #: room is there, but not in whole slots
    GANG_NOT_WHOLE = "gang_not_whole"  #: fewer than `min_count` found room
    HELD_BACK = "held_back"  #: room is kept for a request that starves
    KEPT_SPARE = "kept_spare"  #: room is kept for the VMs of hosts that may fail
    ANTI_AFFINITY = "anti_affinity"  #: hosts with room hold a VM of its group already
    AFFINITY = "affinity"  #: the host of its group is full, or no host holds enough of it
    ZONE_FULL = "zone_full"  #: zones with room have their part of its VMs already
    SPOT_ENDING = "spot_ending"  #: spot or borrowed VMs end, or ended, to make room for it
    LOWER_PRIORITY = "lower_priority"  #: a request of its tenant with a higher priority took it
    QUOTA = "quota"  #: its tenant, or a group above it, may have no more
    NOTHING_ASKED = "nothing_asked"  #: it demands nothing, so it gets nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """VMs of one request that this round did not place."""

    request: int  #: an index of Q
    count: int
    reason: Reason


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Allocation:
    """A round's whole outcome.

    ``placed`` holds each (request, host) at most once, sorted by request, then
    host, counts above zero. For every request placed + left out = count.
    """

    placed: IntArray  #: (P, 3) rows of request, host, count
    left_out: tuple[LeftOut, ...]
    work: int = 0  #: units of the budget that were spent
    cut: bool = False  #: did the budget or a limit cut the search?
    details: Mapping[str, Any] = field(default_factory=dict)  #: JSON values only


class Policy(Protocol):
    """A placement algorithm picked by name. Pure: same input, same allocation."""

    def place(self, snapshot: Snapshot, rng: np.random.Generator, budget: Budget) -> Allocation:
        """Decide a round: place the requests of a snapshot on its hosts."""
        ...
