"""Everything that one host can hold: its maximal combinations of kinds of VM."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def maximal_patterns(
    room: Sequence[int], demands: Sequence[Sequence[int]], max_counts: Sequence[int], limit: int
) -> tuple[list[tuple[int, ...]] | None, int]:
    """Return the combinations of VMs that fit on a host and to which no VM can be added.

    Parameters
    ----------
    room : sequence of int, length R
    demands : sequence of vectors, (T, R)
        Each demands something.
    max_counts : sequence of int, length T
        No combination holds more VMs of a kind.
    limit : int
        Combinations that are looked at, maximal or not.

    Returns
    -------
    list of tuple of int, length T, or None
        In descending order; None when there were more to look at.
    int
        How many were looked at.
    """
    found = []
    looked_at = 0
    for pattern, left in _combinations(room, demands, max_counts):
        if looked_at == limit:
            return None, looked_at
        looked_at += 1
        if not any(
            count < bound and _has_room(left, demand)
            for count, bound, demand in zip(pattern, max_counts, demands, strict=True)
        ):
            found.append(pattern)
    return found, looked_at


def _combinations(
    room: Sequence[int], demands: Sequence[Sequence[int]], max_counts: Sequence[int]
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Yield combinations with the room they leave; the last kind's count is the most that fits."""
    if not demands:
        yield (), tuple(room)
        return
    demand = demands[0]
    demanded = [r for r, amount in enumerate(demand) if amount]
    top = min(max_counts[0], *(room[r] // demand[r] for r in demanded))
    for count in range(top, (top if len(demands) == 1 else 0) - 1, -1):
        left = tuple(a - count * b for a, b in zip(room, demand, strict=True))
        for rest, end in _combinations(left, demands[1:], max_counts[1:]):
            yield (count, *rest), end


def _has_room(room: Sequence[int], demand: Sequence[int]) -> bool:
    """Return whether a host's room holds one VM of a demand."""
    return all(a >= b for a, b in zip(room, demand, strict=True))
