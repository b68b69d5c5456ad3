from __future__ import annotations

import pytest

from registry import Registry
from tests.integration.workers.world import World


@pytest.fixture
def world(register: Registry) -> World:
    return World(register)
