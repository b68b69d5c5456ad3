"""Fixtures for every test, and the account of all for `scripts/run_tests.py`."""

from __future__ import annotations

import gc

import pytest
from hypothesis import settings

from tests.account import Account
from tests.compiled_statements import compiled_once
from tests.deciding import decider
from tests.register import raw, register, register_url, upgraded_database
from tests.servers.postgres import postgres

__all__ = [
    "compiled_once",
    "decider",
    "postgres",
    "raw",
    "register",
    "register_url",
    "upgraded_database",
]  # fixtures for every test

# Hypothesis: the same examples everywhere, no verdict by the clock.
settings.register_profile("fuga", derandomize=True, deadline=None, max_examples=60)
settings.load_profile("fuga")


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # under xdist: in the controller only
        config.pluginmanager.register(Account(), "account")


def pytest_collection_finish() -> None:
    """Let the garbage collector pass over 8,000 tests and their modules, which stay to the end.

    It would go through all of them again and again while tests run: a seventh of the
    processor time of calls.
    """
    gc.collect()
    gc.freeze()
