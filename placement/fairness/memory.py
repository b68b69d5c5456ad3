"""Memory of past holdings: how it decays, and how it counts in a round.

A tenant's level is the dominant share per weight of ``d * past + (1 - d) * now``: ``past`` is the
decayed mean of what it held while others waited, ``now`` what it holds, and
``d = 2 ** (-horizon / half_life)``. It is the mean that the tenant will have at the horizon if it
keeps what it holds. A factor that all levels share changes no order, so a round counts
``now + d / (1 - d) * past`` as held: a VM that it places then counts ``1 - d``, as it should.

Every number is an integer. Powers of 2 come from integer square roots, not from the C library, so
all machines compute the same.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from placement.fairness.shares import fractions_of_pool
from placement.model.arrays import BoolArray, FloatArray, IntArray
from placement.model.memory import PARTS, HoldingMemory
from placement.model.snapshot import LARGEST_TOTAL, Allocation, Reason, Snapshot
from placement.model.tenant_tree import TenantTree

#: Fractions are integers in units of 2 ** -_BITS.
_BITS: Final = 64
ONE: Final = 1 << _BITS
#: Waiting for these reasons ends when others release room; others' holdings cause no other.
_WAITS_FOR_ROOM: Final = frozenset(
    {
        Reason.NO_ROOM,
        Reason.ABOVE_OVERLOAD,
        Reason.NO_SLOTS,
        Reason.GANG_NOT_WHOLE,
        Reason.HELD_BACK,
        Reason.KEPT_SPARE,
    }
)


@dataclass(frozen=True, slots=True)
class KeptMemory:
    """What is kept of a tenant or group between rounds; R resources.

    From ``at_us`` on it counts as holding ``charged``, until the next is kept.
    """

    past: tuple[int, ...]  #: (R,) decayed mean at ``at_us``, in millionths of a unit
    charged: tuple[int, ...]  #: (R,) what it held if others waited, else 0
    at_us: int  #: microseconds since 1970

    def past_at(self, now_us: int, half_life_s: int) -> tuple[int, ...]:
        """Return the decayed mean at a time; before ``at_us`` it is that of ``at_us``."""
        rest = power_of_half(max(0, now_us - self.at_us), half_life_s * 10**6)
        return tuple(
            held * PARTS + _rounded_product(past - held * PARTS, rest)
            for past, held in zip(self.past, self.charged, strict=True)
        )


@functools.cache
def _roots_of_half() -> tuple[int, ...]:
    """Return 2 ** -(2 ** -k) for k = 1, 2, …, rounded down, in units of 2 ** -128."""
    roots, last = [], 1 << 127
    for _ in range(_BITS):
        last = math.isqrt(last << 128)
        roots.append(last)
    return tuple(roots)


def power_of_half(time: int, half_life: int) -> int:
    """Return 2 ** (-time / half_life) in units of 2 ** -64, within one unit.

    Parameters
    ----------
    time, half_life : int
        In one unit, not below 0 and above 0.

    Examples
    --------
    >>> power_of_half(3, 1) == ONE // 8
    True
    """
    halvings, rest = divmod(time, half_life)
    if halvings > _BITS:
        return 0
    bits = (rest << _BITS) // half_life
    power = 1 << 128
    for place, root in enumerate(_roots_of_half()):
        if bits >> (_BITS - 1 - place) & 1:
            power = power * root >> 128
    return power >> (128 - _BITS + halvings)


def past_part(memory: HoldingMemory) -> int:
    """Return d, the part of a level that the past has, in units of 2 ** -64."""
    return min(power_of_half(memory.horizon_s, memory.half_life_s), ONE - 1)


def count_past_as_held(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot without its memory, which counts as held; unchanged if it has none.

    Past amounts are rounded to whole units of the resource.
    """
    memory = snapshot.memory
    if memory is None:
        return snapshot
    return dataclasses.replace(snapshot, held=_counted_holdings(snapshot, memory), memory=None)


def _counted_holdings(snapshot: Snapshot, memory: HoldingMemory) -> IntArray:
    """Return held + d / (1 - d) * past in whole units, (N, R); limits have no past."""
    part = past_part(memory)
    divisor = (ONE - part) * PARTS
    # Their sum stays within what a snapshot may hold of a resource.
    room = [LARGEST_TOTAL - sum(column) for column in snapshot.held.T.tolist()]
    most = [max(0, each) // max(1, len(memory.past)) for each in room]
    held = snapshot.held.copy()
    for tenant, past in enumerate(memory.past):
        for resource, amount in enumerate(past):
            if amount:
                further = (amount * part + divisor // 2) // divisor
                held[tenant, resource] += min(further, most[resource])
    return held


def parts_of_level(memory: HoldingMemory, held: IntArray, pool: IntArray) -> FloatArray:
    """Return d * past and (1 - d) * now in parts of the pool, shape (2, N, R).

    The dominant share of their sum, per weight, is a tenant's level.
    """
    part = past_part(memory) / ONE
    past = np.array(memory.past, dtype=np.float64).reshape(held.shape) / PARTS
    return np.stack(
        [
            part * np.divide(past, pool, out=np.zeros_like(past), where=pool > 0),
            (1 - part) * fractions_of_pool(held, pool),
        ]
    )


# ------------------------------------------------------------------ bookkeeping


def pasts_of_nodes(
    tree: TenantTree, kept: Sequence[KeptMemory | None], now_us: int, half_life_s: int, width: int
) -> list[tuple[int, ...]]:
    """Return the decayed mean of every node of a tree, each of ``width`` resources.

    ``kept`` has what is kept of each node; None: it is new, and begins at the mean of its siblings.
    The root has none.
    """
    nothing = (0,) * width
    found = [nothing if each is None else each.past_at(now_us, half_life_s) for each in kept]
    for children in tree.all_children():
        known = [found[node] for node in children if kept[node] is not None]
        if known:
            mean = tuple(sum(column) // len(known) for column in zip(*known, strict=True))
            for node in children:
                found[node] = mean if kept[node] is None else found[node]
    return found


def pasts_of_tenants(
    tree: TenantTree, pasts: Sequence[tuple[int, ...]]
) -> tuple[tuple[int, ...], ...]:
    """Return each tenant's past such that those below a group add up to the group's own, (N, R).

    Siblings share their group's memory in proportion to their own: who leaves a group leaves its
    memory there, and who comes adds nothing to it.
    """
    shared = list(pasts)
    for parent, children in enumerate(tree.all_children()):
        if parent and children:
            columns = zip(shared[parent], *(pasts[node] for node in children), strict=True)
            parts = [_split_amount(whole, own) for whole, *own in columns]
            for node, its in zip(children, zip(*parts, strict=True), strict=True):
                shared[node] = its
    return tuple(shared[node] for node in tree.leaf)


def _split_amount(whole: int, own: Sequence[int]) -> list[int]:
    """Split an amount in proportion to others, into equal parts if all are 0; the sum is exact."""
    weights = own if any(own) else [1] * len(own)
    total, passed, given = sum(weights), 0, 0
    parts = []
    for each in weights:
        passed += each
        parts.append(whole * passed // total - given)
        given += parts[-1]
    return parts


def tenants_waiting_for_room(snapshot: Snapshot, allocation: Allocation) -> BoolArray:
    """Return which tenants wait for room that others may hold, after an allocation, (N,).

    VMs that no host could take, or that a quota or a rule of their own keeps waiting, do not count:
    a tenant that requests what it cannot get would have all others charged. Spot VMs and what a
    request may borrow do not count: they get what others leave.
    """
    leftover = [each.asks for each in (snapshot.borrowed, snapshot.spot) if each is not None]
    waits = np.zeros(len(snapshot.weight), dtype=np.bool_)
    for left in allocation.left_out:
        uses_leftover = any(asks[left.request] for asks in leftover)
        if left.reason in _WAITS_FOR_ROOM and not uses_leftover:
            waits[snapshot.tenant[left.request]] = True
    return waits


def memory_after_round(
    tree: TenantTree,
    kept: Sequence[KeptMemory | None],
    pasts: Sequence[tuple[int, ...]],
    *,
    held: IntArray,
    waits: BoolArray,
    now_us: int,
) -> list[KeptMemory | None]:
    """Return what is to be kept of each node after a round; None: what is kept stays.

    Parameters
    ----------
    kept, pasts
        As `pasts_of_nodes` takes and returns them.
    held : ndarray of int64, shape (N, R)
        What each tenant holds after the round.
    waits : ndarray of bool, shape (N,)
        See `tenants_waiting_for_room`. A node is charged while tenants that are not below it wait.
    """
    amounts: list[list[int]] = [[0] * held.shape[1] for _ in tree.parent]
    waiting = [0] * len(tree.parent)
    for leaf, row, waits_now in zip(tree.leaf, held.tolist(), waits.tolist(), strict=True):
        amounts[leaf], waiting[leaf] = row, int(waits_now)
    for node in range(len(tree.parent) - 1, 0, -1):
        above = tree.parent[node]
        amounts[above] = [a + b for a, b in zip(amounts[above], amounts[node], strict=True)]
        waiting[above] += waiting[node]
    new: list[KeptMemory | None] = [None]
    for node in range(1, len(tree.parent)):
        others_wait = waiting[0] > waiting[node]
        charged = tuple(amounts[node]) if others_wait else (0,) * held.shape[1]
        before = kept[node]
        stays = before is not None and before.charged == charged and before.at_us <= now_us
        new.append(None if stays else KeptMemory(pasts[node], charged, now_us))
    return new


def _rounded_product(amount: int, part: int) -> int:
    return (amount * part + ONE // 2) >> _BITS
