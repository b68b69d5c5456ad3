"""The API against its own OpenAPI document: generated calls, good ones and bad ones.

`make fuzz` is the long form, on PostgreSQL.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from schemathesis import Case

from registry import Registry
from tests.fuzzing import SCHEMA, FuzzedApi, served_with_content
from tests.selection import examples, is_short

pytestmark = [pytest.mark.sqlite, pytest.mark.slow, pytest.mark.shortened]


def generated(most: int, *, each_bound: bool = True) -> settings:
    """Make ``most`` drawn calls an operation, after one beyond each bound of each parameter."""
    return settings(
        max_examples=examples(most),
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.explicit] * (each_bound and not is_short()) + [Phase.generate],
        suppress_health_check=list(HealthCheck),
    )


@pytest.fixture(scope="session")
def api_with_content(
    upgraded_database: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[FuzzedApi]:
    path = tmp_path_factory.mktemp("schemathesis") / "fuga.db"
    shutil.copy(upgraded_database, path)
    registry = Registry.connect(f"sqlite:///{path}")
    with served_with_content(registry, path.parent) as api:
        yield api
    registry.close()


@SCHEMA.parametrize()
@generated(6)
def test_an_operators_calls_are_answered_as_documented(case: Case, api_with_content: FuzzedApi):
    api_with_content.call(case, "operator")


@SCHEMA.parametrize()
@generated(4, each_bound=False)  # the bounds are the same for everybody
def test_a_tenants_calls_are_answered_as_documented(case: Case, api_with_content: FuzzedApi):
    api_with_content.call(case, "tenant")


@SCHEMA.parametrize()
@generated(2, each_bound=False)  # what a reader may ask is read as a tenant's, and tried there
def test_a_readers_calls_are_answered_as_documented(case: Case, api_with_content: FuzzedApi):
    api_with_content.call(case, "reader")
