"""Metrics of the API: who may read them, and what they tell of calls and of the register."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from controller.fleet_metrics import FleetCollector
from controller.rest import create_app
from registry import Registry
from service import ProcessMetrics
from tests.e2e.conftest import Api, a_token
from tests.problems import the_problem
from tests.raw_sql import RawSql
from tests.register import a_cluster
from tests.servers.http_client import a_client


def samples(text: str) -> dict[tuple[str, ...], float]:
    """Return values by name and label values, labels in order of their names."""
    return {
        (each.name, *(each.labels[key] for key in sorted(each.labels))): each.value
        for family in text_string_to_metric_families(text)
        for each in family.samples
    }


def test_metrics_name_tenants_so_only_operators_read_them(api: Api) -> None:
    the_problem(api.stranger.get("/metrics"), 401, "unauthorized")
    the_problem(api.tenant_a.get("/metrics"), 403, "forbidden")
    assert api.operator.get("/metrics").status_code == 200


def test_calls_are_counted_by_route_and_not_by_what_callers_wrote(api: Api) -> None:
    for name in ("x", "y"):
        api.operator.get(f"/v1/vm-types/{name}")
    api.operator.get("/v1/vm-types/small")
    for path in ("/nowhere", "/v1/nowhere", "/v1/nowhere/else"):
        api.operator.get(path)
    api.stranger.get("/v1/hosts")
    api.stranger.request("BREW", "/healthz")

    found = samples(api.operator.get("/metrics").text)

    calls = "fuga_http_requests_total"
    assert found[calls, "GET", "/v1/vm-types/{name}", "404"] == 2
    assert found[calls, "GET", "/v1/vm-types/{name}", "200"] == 1
    assert found[calls, "GET", "none", "404"] == 3
    assert found[calls, "GET", "none", "401"] == 1
    assert found[calls, "OTHER", "/healthz", "405"] == 1
    assert found["fuga_http_request_seconds_count", "GET", "/v1/vm-types/{name}"] == 3
    shown = {each for name in found if name[0] == calls for each in name[1:]}
    assert not shown & {"x", "y", "nowhere", "BREW"}


def test_the_register_is_told_beside_the_calls(register: Registry) -> None:
    a_cluster(register)
    metrics = ProcessMetrics("api")
    metrics.registry.register(FleetCollector(register, interval_s=60, max_series=10))
    operator = a_client(create_app(register, metrics=metrics), token=a_token(register, None))

    found = samples(operator.get("/metrics").text)

    assert found["fuga_register_reachable",] == 1
    assert found["fuga_capacity", "vcpus", ""] == 16
    assert found["fuga_hosts", "active", "up"] == 1


def test_a_schema_that_is_older_is_not_ready_and_one_that_is_newer_is(
    api: Api, raw: RawSql
) -> None:
    assert api.stranger.get("/readyz").status_code == 200

    raw.run("UPDATE alembic_version SET version_num = '9999'")
    assert api.stranger.get("/readyz").status_code == 200

    raw.run("UPDATE alembic_version SET version_num = '0066'")
    problem = the_problem(api.stranger.get("/readyz"), 503, "schema_outdated")
    assert "fuga db upgrade" in problem["detail"]
