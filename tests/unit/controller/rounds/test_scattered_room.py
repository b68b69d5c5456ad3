"""Whether moves could make room follows from what is free in all, and where."""

from __future__ import annotations

import numpy as np
import pytest

from controller.rounds.scattered_room import is_room_scattered
from tests.builders import a_snapshot

GIB = 1024


@pytest.mark.parametrize(
    ("free", "accepts", "scattered"),
    [
        pytest.param([20, 20, 20], [1, 1, 1], True, id="enough in all, on no host"),
        pytest.param([28, 0, 0], [1, 1, 1], False, id="it fits already"),
        pytest.param([20, 4, 3], [1, 1, 1], False, id="too little in all"),
        pytest.param([20, 20, 0], [1, 0, 1], False, id="the rest is on a closed host"),
        pytest.param([0, 28, 0], [0, 1, 1], False, id="the host with room takes it"),
    ],
)
def test_enough_has_to_be_free_in_all_and_on_no_host(
    free: list[int], accepts: list[int], scattered: bool
):
    snapshot = a_snapshot(capacity=[[8, 32]] * 3, demand=[[4, 28]])
    left = np.array([[8, each] for each in free])

    found = is_room_scattered(snapshot, left, np.array(accepts, dtype=bool), 0)

    assert found is scattered


def test_no_moves_let_in_what_is_larger_than_each_host():
    snapshot = a_snapshot(capacity=[[8, 32]] * 3, demand=[[4, 40]])

    assert not is_room_scattered(snapshot, np.full((3, 2), 20), np.ones(3, dtype=bool), 0)
