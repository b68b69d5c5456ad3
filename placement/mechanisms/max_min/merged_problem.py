"""Merge tenants and classes that are equal to a linear program."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from placement.model.arrays import BoolArray, FloatArray, IntArray
from placement.model.row_groups import group_rows


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class MergedProblem:
    """G groups of tenants of equal shape and V groups of classes, and their members.

    Tenants whose demands are proportional, which may use the same classes at the
    same speeds, can take each other's place: only the sum of what they need
    matters, whatever their weights, counts and holdings. Classes whose free
    vectors are proportional, which are open to the same tenants at the same
    speeds, are as good as one of their sum.
    """

    group: IntArray  #: (N,) of each tenant
    kind: IntArray  #: (K,) of each class
    shape: FloatArray  #: (G, R)
    able: BoolArray  #: (G, V)
    speed: FloatArray  #: (G, V)
    room: FloatArray  #: (V, R)
    part: FloatArray  #: (K,) what part of its kind's room each class is

    def sums(self, amounts: FloatArray) -> FloatArray:
        """Return the sum of the needs of each group of tenants, shape (G,)."""
        sums: FloatArray = np.zeros(len(self.shape))
        np.add.at(sums, self.group, amounts)
        return sums

    def split_among_members(self, merged: FloatArray, amounts: FloatArray) -> FloatArray:
        """Divide amounts of groups, (G, V), among their tenants and classes, shape (N, K)."""
        sums = self.sums(amounts)[self.group]
        mine = np.divide(amounts, sums, out=np.zeros_like(amounts), where=sums > 0)
        spread: FloatArray = (mine[:, None] * merged[self.group])[:, self.kind] * self.part
        return spread


def merge_problem(
    shape: FloatArray, able: BoolArray, speed: FloatArray, room: FloatArray
) -> MergedProblem:
    """Merge tenants and host classes that are equal to a linear program.

    Parameters
    ----------
    shape : ndarray, shape (N, R)
        Normalised demands, the largest component 1.
    able, speed : ndarray, shape (N, K)
    room : ndarray, shape (K, R)
        Free, in fractions of the pool.
    """
    largest = room.max(axis=1, initial=0.0)
    direction = np.divide(
        room, largest[:, None], out=np.zeros_like(room), where=largest[:, None] > 0
    )
    tenants = group_rows(_round_to_significant(shape), able, speed)
    group, first = tenants.of_row, tenants.first
    classes = group_rows(_round_to_significant(direction), able[first].T, speed[first].T)
    kind, place = classes.of_row, classes.first
    kinds = len(classes)
    sizes = np.bincount(kind, weights=largest, minlength=kinds)[kind]
    part = np.divide(largest, sizes, out=np.zeros_like(largest), where=sizes > 0)
    merged_room = np.zeros((kinds, room.shape[1]))
    np.add.at(merged_room, kind, room)
    return MergedProblem(
        group=group,
        kind=kind,
        shape=shape[first],
        able=able[np.ix_(first, place)],
        speed=speed[np.ix_(first, place)],
        room=merged_room,
        part=part,
    )


def _round_to_significant(values: FloatArray) -> FloatArray:
    """Round to about twelve significant digits, so that rounding errors do not separate rows."""
    mantissa, exponent = np.frexp(values)
    rounded: FloatArray = np.ldexp(np.round(mantissa, 12), exponent)
    return rounded
