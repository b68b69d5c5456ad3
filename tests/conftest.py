"""Counts, for every suite, on what its tests ran: databases, test driver, real guests."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import settings

from tests.deciding import decider
from tests.register import raw, register, register_url, upgraded_database
from tests.servers.postgres import postgres

__all__ = [
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

GROUNDS = ("sqlite", "postgresql", "test_driver", "qemu")


class GroundCounter:
    """Adds up outcomes per marker; works under xdist, where only reports come back."""

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            outcome = "failed" if report.outcome == "failed" else report.outcome
            self.outcomes[f"all {outcome}"] += 1
            if outcome == "skipped" and "demanding" in report.keywords:
                return  # it says what it misses; those that ask less are the measure
            for ground in GROUNDS:
                if ground in report.keywords:
                    self.outcomes[f"{ground} {outcome}"] += 1

    def pytest_sessionfinish(self) -> None:
        if counts := os.environ.get("FUGA_TEST_COUNTS"):
            with Path(counts).open("a") as file:
                file.write(json.dumps(self.outcomes) + "\n")


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # under xdist: in the controller only
        config.pluginmanager.register(GroundCounter(), "ground-counter")
