"""The sample of the tests that `make test` runs; `make test-all` runs all (ADR 0084)."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable

import pytest

from scripts.run_tests import SAMPLE

DATABASES = ("sqlite", "postgresql")
#: Their SQL is that of stores, which are tested on both databases. In the sample each test of them
#: runs on one of the two, half of all on each.
ON_ONE_DATABASE = (
    "tests/e2e/operators/",
    "tests/e2e/tenants/",
    "tests/integration/moves/",
    "tests/integration/admin/",
    "tests/integration/rounds/",
    "tests/integration/workers/",
)


def wanted() -> bool:
    """Whether this run is of the sample alone."""
    return bool(os.environ.get(SAMPLE))


def examples(most: int) -> int:
    """Return how many examples Hypothesis draws of one property: in the sample a quarter."""
    return -(-most // 4) if wanted() else most


def left_out(items: Iterable[pytest.Item]) -> set[str]:
    """Name the tests that are not of the sample.

    Those are the tests marked ``long``, the other database of each test of `ON_ONE_DATABASE`, and
    of a test marked ``sampled(n)`` all cases but every n-th. A checksum of its name chooses a case,
    so that the sample is always the same. Each test that is not ``long`` keeps one case at least.
    """
    items = list(items)
    names = {item.nodeid for item in items if item.get_closest_marker("long")}
    names |= _on_the_other_database(items)
    return names | _cases_too_many([item for item in items if item.nodeid not in names])


def _on_the_other_database(items: Iterable[pytest.Item]) -> set[str]:
    pairs: dict[str, dict[str, str]] = {}
    for item in items:
        drawn = getattr(item, "callspec", None)
        database = None if drawn is None else drawn.params.get("register_url")
        if database in DATABASES and item.nodeid.startswith(ON_ONE_DATABASE):
            pairs.setdefault(item.nodeid.replace(database, ""), {})[database] = item.nodeid
    return {
        of[DATABASES[_checksum(test) % 2]]
        for test, of in pairs.items()
        if len(of) == len(DATABASES)
    }


def _cases_too_many(items: Iterable[pytest.Item]) -> set[str]:
    cases: dict[str, list[str]] = {}
    shares: dict[str, int] = {}
    for item in items:
        if mark := item.get_closest_marker("sampled"):
            test = item.nodeid.partition("[")[0]
            cases.setdefault(test, []).append(item.nodeid)
            shares[test] = mark.args[0]
    too_many: set[str] = set()
    for test, names in cases.items():
        kept = -(-len(names) // shares[test])
        too_many |= set(sorted(names, key=_checksum)[kept:])
    return too_many


def _checksum(name: str) -> int:
    return zlib.crc32(name.encode())
