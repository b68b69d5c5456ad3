"""The API against its own OpenAPI document: generated calls, good ones and bad ones."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis import Case
from schemathesis.config import SchemathesisConfig

from controller.policy_process import PolicyProcess
from controller.rest import create_app
from registry import ImageStore, Registry
from tests.e2e.conftest import a_token
from tests.e2e.slots import run_slot
from tests.register import a_cluster, add_request
from tests.serving import served

pytestmark = [pytest.mark.sqlite, pytest.mark.slow]

CONFIG = SchemathesisConfig.from_dict(
    {
        # The tests send tokens; the check `ignored_auth` leaves them out again.
        "generation": {"with-security-parameters": False},
        "checks": {
            # What is right in form may name a tenant that is not there: 422 as well.
            "positive_data_acceptance": {
                "expected-statuses": ["2xx", "403", "404", "409", "422"],
            },
        },
    }
)
GENERATED = settings(
    max_examples=20,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@dataclass(frozen=True)
class Served:
    """An API with something in it, and the tokens of an operator and a tenant."""

    url: str
    operator: dict[str, str]
    tenant: dict[str, str]


@pytest.fixture(scope="session")
def api_with_content(
    upgraded_database: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    path = tmp_path_factory.mktemp("schemathesis") / "fuga.db"
    shutil.copy(upgraded_database, path)
    registry = Registry.connect(f"sqlite:///{path}")
    a_cluster(registry)
    add_request(registry, count=20, name="web")
    decider = PolicyProcess()
    run_slot(registry, decider)
    decider.close()
    store = ImageStore(path.with_name("images"), max_bytes=4096)
    with served(create_app(registry, image_store=store, console_wait_s=0.01)) as url:
        yield Served(
            url=url,
            operator={"Authorization": f"Bearer {a_token(registry, None)}"},
            tenant={"Authorization": f"Bearer {a_token(registry, 'a')}"},
        )
    registry.close()


#: The document is the same whatever the register center holds.
schema = schemathesis.openapi.from_dict(create_app(cast(Registry, None)).openapi(), config=CONFIG)


@schema.parametrize()
@GENERATED
def test_an_operators_calls_are_answered_as_documented(case: Case, api_with_content: Served):
    case.call_and_validate(api_with_content.url, headers=api_with_content.operator)


@schema.parametrize()
@GENERATED
def test_a_tenants_calls_are_answered_as_documented(case: Case, api_with_content: Served):
    case.call_and_validate(api_with_content.url, headers=api_with_content.tenant)
