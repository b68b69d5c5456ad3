"""Fixtures for every test, and the account of all for `scripts/run_tests.py`."""

from __future__ import annotations

import gc
import os
import zlib

import pytest
from hypothesis import settings

from scripts.run_tests import ONE_DATABASE, WITH_HOSTS
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

DATABASES = ("sqlite", "postgresql")
#: Their SQL is that of stores, which are tested on both databases. `make test` runs each test of
#: them on one of the two, half of all on each (ADR 0084).
ON_ONE_DATABASE = (
    "tests/e2e/operators/",
    "tests/e2e/tenants/",
    "tests/integration/moves/",
    "tests/integration/operating/",
    "tests/integration/rounds/",
    "tests/integration/workers/",
)

# Hypothesis: the same examples everywhere, no verdict by the clock.
settings.register_profile("fuga", derandomize=True, deadline=None, max_examples=60)
settings.load_profile("fuga")


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # under xdist: in the controller only
        config.pluginmanager.register(Account(), "account")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Refuse a test with hosts where `make test` does not look for them."""
    places = [config.rootpath / each for each in (*WITH_HOSTS, "tests/chaos", "tests/distribution")]
    for item in items:
        has_host = item.get_closest_marker("qemu") or item.get_closest_marker("test_driver")
        if has_host and not any(item.path.is_relative_to(place) for place in places):
            raise pytest.UsageError(f"WITH_HOSTS of scripts/run_tests.py lacks {item.nodeid}")
    if os.environ.get(ONE_DATABASE):
        names = on_the_other_database(items)
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in names])
        items[:] = [item for item in items if item.nodeid not in names]


def on_the_other_database(items: list[pytest.Item]) -> set[str]:
    """Name the half of `ON_ONE_DATABASE` that does not run: each test's other database."""
    pairs: dict[str, dict[str, str]] = {}
    for item in items:
        drawn = getattr(item, "callspec", None)
        database = None if drawn is None else drawn.params.get("register_url")
        if database in DATABASES and item.nodeid.startswith(ON_ONE_DATABASE):
            pairs.setdefault(item.nodeid.replace(database, ""), {})[database] = item.nodeid
    return {
        of[DATABASES[zlib.crc32(test.encode()) % 2]]
        for test, of in pairs.items()
        if len(of) == len(DATABASES)
    }


def pytest_collection_finish() -> None:
    """Let the garbage collector pass over 8,000 tests and their modules, which stay to the end.

    It would go through all of them again and again while tests run: a seventh of the
    processor time of calls.
    """
    gc.collect()
    gc.freeze()
