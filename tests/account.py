"""An account of a run of pytest: on what its tests ran, what became of them, what they took."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import pytest

from tests.libvirt_faults import SECTION

GROUNDS = ("sqlite", "postgresql", "test_driver", "qemu")


class Account:
    """Outcomes and seconds, from reports alone: under xdist, nothing else comes back."""

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.seconds: Counter[str] = Counter()  # of set-up, call and tear-down
        self.failed: list[str] = []
        self.libvirt: dict[str, str] = {}  #: of failed tests, the fault of libvirt's

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid] += report.duration
        if report.outcome == "failed" and report.nodeid not in self.failed:
            self.failed.append(report.nodeid)
            faults = [fault for title, fault in report.sections if title == SECTION]
            if faults:
                self.libvirt[report.nodeid] = "; ".join(faults)
        if report.when == "call" or report.outcome != "passed":
            self.outcomes[f"all {report.outcome}"] += 1
            if report.outcome == "skipped" and "demanding" in report.keywords:
                return  # it says what it misses; those that ask less are the measure
            for ground in GROUNDS:
                if ground in report.keywords:
                    self.outcomes[f"{ground} {report.outcome}"] += 1

    def pytest_sessionfinish(self) -> None:
        if account := os.environ.get("FUGA_TEST_ACCOUNT"):
            with Path(account).open("a") as file:
                file.write(json.dumps(vars(self)) + "\n")
