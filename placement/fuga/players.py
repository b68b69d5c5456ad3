"""The players of a game: hosts that could take a VM."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from placement.model.arrays import IntArray
from placement.model.snapshot import Snapshot
from placement.model.vm_kinds import VmKinds, hosts_for, vms_that_fit


@dataclass(frozen=True, slots=True, eq=False)
class Player:
    """A host in one game."""

    host: int
    capacity: IntArray  #: (R,)
    free: IntArray  #: (R,) free vector F(m) when the game begins
    room: IntArray  #: (R,) the part of it below the overload threshold
    fits: IntArray  #: (T,) VMs of each kind that the room holds by themselves


@dataclass(frozen=True, slots=True, eq=False)
class Players:
    """Many players: the fields of `Player` as arrays, with an axis P in front."""

    host: IntArray  #: (P,)
    capacity: IntArray  #: (P, R)
    free: IntArray  #: (P, R)
    room: IntArray  #: (P, R)
    fits: IntArray  #: (P, T)

    def __len__(self) -> int:
        return len(self.host)

    def __getitem__(self, player: int) -> Player:
        return Player(
            int(self.host[player]),
            self.capacity[player],
            self.free[player],
            self.room[player],
            self.fits[player],
        )

    def take(self, which: IntArray) -> Players:
        """Return the players at some indices, (X,), in that order; one may come twice."""
        return Players(
            self.host[which],
            self.capacity[which],
            self.free[which],
            self.room[which],
            self.fits[which],
        )


def find_players(
    snapshot: Snapshot, kinds: VmKinds, free: IntArray, room: IntArray, ranking: IntArray
) -> Players:
    """Return the hosts that can play: something free of every ranking resource, room for a VM.

    ``free`` and ``room``, shape (H, R), as the game finds them.
    """
    fits = np.zeros((len(free), len(kinds)), dtype=np.int64)
    for kind, open_to in enumerate(hosts_for(snapshot, kinds)):
        fits[:, kind] = np.where(open_to, vms_that_fit(room, kinds.demand[kind]), 0)
    able = (free[:, ranking] > 0).all(axis=1) & (fits > 0).any(axis=1)
    every_host = Players(np.arange(len(free)), snapshot.capacity, free, room, fits)
    return every_host.take(np.flatnonzero(able))
