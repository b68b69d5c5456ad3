"""What suites of moves share."""

from __future__ import annotations

import pytest

from registry import Registry
from tests.integration.moves.world import MovingWorld


@pytest.fixture
def world(register: Registry) -> MovingWorld:
    return MovingWorld(register)
