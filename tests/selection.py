"""Which tests `make test` runs, the short form, and which `make test-all`, the rest (ADR 0090).

Of a test in `ON_ONE_DATABASE` that could run on both, the two together run one (ADR 0112).
"""

from __future__ import annotations

import os
import re
import zlib
from collections import defaultdict
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from scripts.run_tests import PART, REST, SHORT

#: Product modules whose SQL differs by database, and the tests that run on both in the short form.
ON_BOTH_DATABASES: Final = {
    "registry/admin/connections.py": ("tests/integration/admin/test_doctor.py",),
    "registry/admin/database_role.py": ("tests/integration/admin/test_run_role.py",),
    "registry/admin/doctor.py": ("tests/integration/admin/test_doctor.py",),
    "registry/admin/known_schema.py": ("tests/integration/admin/test_migrations.py",),
    "registry/admin/references.py": ("tests/integration/admin/test_doctor.py",),
    "registry/admin/upgrade.py": ("tests/integration/admin/test_migrations.py",),
    "registry/audit/audit.py": ("tests/e2e/operators/test_audit.py",),
    "registry/audit/events.py": ("tests/e2e/tenants/test_events.py",),
    "registry/db/background_statements.py": ("tests/integration/ledger/test_many_rows.py",),
    "registry/db/bulk.py": ("tests/integration/ledger/test_many_rows.py",),
    "registry/db/clock.py": (
        "tests/integration/admin/test_clock_steps.py",
        "tests/integration/registry/test_reports.py",
    ),
    "registry/db/dialect.py": ("tests/integration/ledger/test_races.py",),
    "registry/db/engine.py": ("tests/e2e/calls/test_hanging_database.py",),
    "registry/db/exact_decimal.py": ("tests/integration/usage/test_costs.py",),
    "registry/db/if_match.py": ("tests/integration/registry/test_preconditions.py",),
    "registry/db/locks.py": ("tests/integration/ledger/test_races.py",),
    "registry/db/idempotency_keys.py": ("tests/e2e/calls/test_calls_made_twice.py",),
    "registry/db/online_indexes.py": ("tests/integration/admin/test_migrations.py",),
    "registry/db/schema.py": ("tests/integration/admin/test_migrations.py",),
    "registry/db/watched_connection.py": ("tests/e2e/calls/test_hanging_database.py",),
    "registry/ledger/placeable.py": ("tests/integration/ledger/test_ledger.py",),
    "registry/ledger/triggers.py": ("tests/integration/ledger/test_ledger.py",),
    "registry/networks/addresses.py": ("tests/integration/registry/test_networks.py",),
    "registry/requests/batch.py": ("tests/properties/test_accepted_together.py",),
    "registry/rounds/known_hosts.py": ("tests/integration/registry/test_known_hosts.py",),
    "registry/tasks/assignments.py": ("tests/integration/ledger/test_claims.py",),
    "registry/tenancy/quota_use.py": ("tests/integration/registry/test_quotas.py",),
    "registry/usage/daily_usage.py": ("tests/integration/usage/test_usage.py",),
    "registry/usage/charged_parts.py": ("tests/integration/usage/test_budget_amounts.py",),
    "registry/usage/usage.py": ("tests/integration/usage/test_usage.py",),
}
#: Of tests in these folders that need not run on both databases, half of them run on each.
ON_ONE_DATABASE: Final = ("tests/e2e/", "tests/integration/")
_BOTH: Final = {each for tests in ON_BOTH_DATABASES.values() for each in tests}
#: A module of tests that imports one of these tries locks and races, which differ by database too.
_RACES = re.compile(
    r"^(?:from|import) (?:threading|multiprocessing|concurrent\.futures|tests\.deaths)\b", re.M
)


def is_short() -> bool:
    """Whether this run is of the short form."""
    return os.environ.get(PART) == SHORT


def examples(most: int) -> int:
    """Return how many examples Hypothesis draws of one property: in the short form a quarter.

    A test that asks this is marked ``shortened``, so that the rest has it again, with all.
    """
    return -(-most // 4) if is_short() else most


def left_out(items: Iterable[pytest.Item]) -> set[str]:
    """Name the tests that are not of this run: all others of a short form, or of the rest.

    A run that is neither leaves nothing out.
    """
    items = list(items)
    if is_short():
        return _beyond_the_short_form(items)
    if os.environ.get(PART) == REST:
        short = {item.nodeid for item in items} - _beyond_the_short_form(items)
        shortened = {item.nodeid for item in items if item.get_closest_marker("shortened")}
        return (short - shortened) | _on_one_database(items)
    return set()


def _beyond_the_short_form(items: list[pytest.Item]) -> set[str]:
    """Name the tests that only the rest has.

    Those are the tests marked ``long``; those with hosts that are not marked ``essential``; those
    on PostgreSQL that neither races nor `ON_BOTH_DATABASES` need there and that SQLite has, too;
    and of a test marked ``sampled(n)`` all cases but every n-th. A checksum of its name chooses a
    case, so that the short form is always the same. A test that is left keeps one case at least.
    Tests that run on PostgreSQL instead of SQLite are the rest's as well.
    """
    names = {item.nodeid for item in items if _is_long(item)}
    names |= _on_the_other_database(items) | _on_one_database(items)
    return names | _cases_too_many([item for item in items if item.nodeid not in names])


def _is_long(item: pytest.Item) -> bool:
    if item.get_closest_marker("long"):
        return True
    has_host = item.get_closest_marker("qemu") or item.get_closest_marker("test_driver")
    return bool(has_host and not item.get_closest_marker("essential"))


def _on_the_other_database(items: Iterable[pytest.Item]) -> set[str]:
    """Name the tests that run on SQLite as well and need not run on PostgreSQL."""
    return {of["postgresql"] for of in _on_both(items)}


def _on_one_database(items: Iterable[pytest.Item]) -> set[str]:
    """Name tests of `ON_ONE_DATABASE`, each on the one of two databases on which it does not run.

    The checksum of its name chooses: every other one runs on PostgreSQL.
    """
    return {
        of["sqlite" if _checksum(of["sqlite"]) % 2 else "postgresql"]
        for of in _on_both(items)
        if of["sqlite"].startswith(ON_ONE_DATABASE)
    }


def _on_both(items: Iterable[pytest.Item]) -> list[dict[str, str]]:
    """Return names by database of tests that could run on both, and need not run on each."""
    pairs: dict[str, dict[str, str]] = defaultdict(dict)
    for item in items:
        if _needs_both_databases(item):
            continue
        drawn = getattr(item, "callspec", None)
        database = None if drawn is None else drawn.params.get("register_url")
        if database:
            pairs[item.nodeid.replace(database, "")][database] = item.nodeid
    return [of for of in pairs.values() if of.keys() >= {"postgresql", "sqlite"}]


def _needs_both_databases(item: pytest.Item) -> bool:
    return item.nodeid.partition("::")[0] in _BOTH or _races(item.path)


@cache
def _races(path: Path) -> bool:
    return bool(_RACES.search(path.read_text()))


def _cases_too_many(items: Iterable[pytest.Item]) -> set[str]:
    cases: dict[str, list[str]] = defaultdict(list)
    shares: dict[str, int] = {}
    for item in items:
        if mark := item.get_closest_marker("sampled"):
            test = item.nodeid.partition("[")[0]
            cases[test].append(item.nodeid)
            shares[test] = mark.args[0]
    too_many: set[str] = set()
    for test, names in cases.items():
        kept = -(-len(names) // shares[test])
        too_many |= set(sorted(names, key=_checksum)[kept:])
    return too_many


def _checksum(name: str) -> int:
    return zlib.crc32(name.encode())
