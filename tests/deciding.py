"""The policy's process for tests that run rounds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from controller.rounds.policy_process import PolicyProcess


@pytest.fixture(scope="session")
def decider() -> Iterator[PolicyProcess]:
    """Decides for all tests of a session; it has imported what it needs: 1.4 s of processor."""
    process = PolicyProcess()
    process.warm_up()
    yield process
    process.close()
