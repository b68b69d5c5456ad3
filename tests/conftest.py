"""Fixtures for every test, and the account of all for `scripts/run_tests.py`."""

from __future__ import annotations

import gc

import pytest
from hypothesis import settings

from scripts.run_tests import WITH_HOSTS
from tests import selection
from tests.account import Account
from tests.compiled_statements import compiled_once
from tests.deciding import decider
from tests.libvirt_faults import LibvirtFaults
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
    config.pluginmanager.register(LibvirtFaults(), "libvirt_faults")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Refuse a test with hosts where `make test` does not look for them."""
    places = [config.rootpath / each for each in (*WITH_HOSTS, "tests/chaos", "tests/distribution")]
    for item in items:
        has_host = item.get_closest_marker("qemu") or item.get_closest_marker("test_driver")
        if has_host and not any(item.path.is_relative_to(place) for place in places):
            raise pytest.UsageError(f"WITH_HOSTS of scripts/run_tests.py lacks {item.nodeid}")
    if names := selection.left_out(items):
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in names])
        items[:] = [item for item in items if item.nodeid not in names]


def pytest_collection_finish() -> None:
    """Let the garbage collector pass over 8,000 tests and their modules, which stay to the end.

    It would go through all of them again and again while tests run: a seventh of the
    processor time of calls.
    """
    gc.collect()
    gc.freeze()
