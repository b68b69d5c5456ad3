"""What VMs held over time, by REST and on the command line."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from registry import Registry
from tests.e2e.conftest import Api, Fuga
from tests.raw_sql import RawSql
from tests.register import add_host, add_request, add_tenant, add_vm_type, place, run_vm, take_lease

START = datetime(2020, 3, 1, tzinfo=UTC)
PERIOD = {"since": "2020-03-01T00:00:00Z", "until": "2020-03-02T00:00:00.25Z"}


def let_run(registry: Registry, raw: RawSql) -> None:
    """Run a VM of each tenant since the first of March."""
    host, lease = add_host(registry, "h1"), take_lease(registry)
    for tenant in "ab":
        request = add_request(registry, tenant=tenant, labels={"team": tenant * 2})
        (key,) = place(registry, request, host, lease=lease).assignment_ids
        run_vm(registry, key)
    at = START.strftime("%Y-%m-%d %H:%M:%S.%f")
    raw.run("UPDATE assignments SET created_at = ?, activated_at = ?", at, at)


def test_a_tenant_reads_its_own_usage_and_an_operator_all(api: Api, raw: RawSql) -> None:
    let_run(api.registry, raw)

    of_a = api.tenant_a.get("/v1/usage", params=PERIOD).json()
    by_tenant = api.operator.get("/v1/usage", params={**PERIOD, "by": "tenant"}).json()
    of_b = api.operator.get("/v1/usage", params={**PERIOD, "tenant": "b"}).json()
    by_label = api.tenant_a.get("/v1/usage", params={**PERIOD, "by": "label:team"}).json()

    assert of_a["items"] == of_b["items"]
    assert of_a["items"][1:3] == [
        {
            "name": None,
            "resource": "vcpus",
            "held": "86400.250000",
            "charged": "86400.250000",
            "cost": None,
        },
        {
            "name": None,
            "resource": "memory_mib",
            "held": "265421568.000000",
            "charged": "265421568.000000",
            "cost": None,
        },
    ]
    assert {each["name"] for each in by_tenant["items"]} == {"a", "b"}
    assert {each["name"] for each in by_label["items"]} == {"aa"}


@pytest.mark.parametrize(
    ("whom", "params", "status"),
    [
        ("tenant_a", {"tenant": "b"}, 403),
        ("tenant_a", {"group": "g"}, 403),
        ("operator", {"tenant": "nobody"}, 422),
        ("operator", {"group": "a"}, 422),
        ("operator", {"by": "host"}, 422),
        ("operator", {"since": "2020-02-30T00:00:00Z"}, 422),
        ("operator", {"until": "2020-03-01T00:00:00Z"}, 422),
    ],
)
def test_what_is_not_known_or_not_ones_own_is_refused(
    api: Api, whom: str, params: dict[str, str], status: int
) -> None:
    answer = getattr(api, whom).get("/v1/usage", params={**PERIOD, **params})

    assert answer.status_code == status, answer.text


def test_the_command_shows_hours_and_csv_has_exact_seconds(
    register: Registry, raw: RawSql, fuga: Fuga
) -> None:
    for name in "ab":
        add_tenant(register, name)
    add_vm_type(register)
    let_run(register, raw)
    period = ("--from", "2020-03-01T00:00Z", "--to", "2020-03-02T00:00Z")

    table = fuga("usage", *period, "--by", "tenant")
    csv = fuga("usage", *period, "--tenant", "a", "-o", "csv")
    month = fuga("usage", "--month", "2020-03", "--by", "type")

    assert [line.split() for line in table.splitlines()[3:5]] == [
        ["a", "vms", "24.000", "24.000"],
        ["a", "vcpus", "24.000", "24.000"],
    ]
    assert csv.splitlines()[:3] == [
        "name,resource,held,charged,cost",
        ",vms,86400.000000,86400.000000,",
        ",vcpus,86400.000000,86400.000000,",
    ]
    assert ["small", "vms", "1,488.000", "1,488.000"] in [
        line.split() for line in month.splitlines()
    ]
    assert "wanted a month" in fuga("usage", "--month", "2020-13", status=2)
    assert "omit --from" in fuga("usage", "--month", "2020-03", *period, status=2)
    assert "tenant" in fuga("usage", *period, "--by", "hosts", status=2)


def test_a_period_without_an_end_ends_now(api: Api) -> None:
    before = datetime.now(UTC) - timedelta(days=1)

    found = api.operator.get("/v1/usage", params={"since": PERIOD["since"]}).json()

    assert datetime.fromisoformat(found["until"]) > before
    assert found["items"] == []
