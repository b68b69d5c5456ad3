"""Prices and costs, by REST and on the command line."""

from __future__ import annotations

import pytest

from registry import Registry
from tests.e2e.conftest import Api, Fuga
from tests.e2e.tenants.test_usage import PERIOD, let_run
from tests.raw_sql import RawSql
from tests.register import add_tenant, add_vm_type

PRICE = {"resource": "vcpus", "price": "0.25", "since": "2020-01-01"}


def test_an_operator_sets_prices_and_a_tenant_reads_them_and_what_its_usage_costs(
    api: Api, raw: RawSql
) -> None:
    let_run(api.registry, raw)

    assert api.operator.post("/v1/prices", json=PRICE).status_code == 409
    named = api.operator.put("/v1/prices/currency", json={"name": "EUR"})
    made = api.operator.post("/v1/prices", json=PRICE, headers={"Idempotency-Key": "once"})
    again = api.operator.post("/v1/prices", json=PRICE, headers={"Idempotency-Key": "once"})
    read = api.tenant_a.get("/v1/prices").json()
    of_a = api.tenant_a.get("/v1/usage", params=PERIOD).json()
    of_all = api.operator.get("/v1/usage", params={**PERIOD, "by": "tenant"}).json()

    assert named.json() == {"name": "EUR", "minor_digits": 2}
    assert made.status_code == 201, made.text
    assert made.json() == again.json() == {**PRICE, "vm_type": None}
    assert read == {"currency": named.json(), "items": [made.json()]}
    assert (of_a["currency"], of_a["cost"]) == ("EUR", "6.00")
    assert [each["cost"] for each in of_a["items"]] == [None, "6.00", None, None]
    assert of_all["cost"] == "12.00"

    for answer in (
        api.tenant_a.post("/v1/prices", json={**PRICE, "since": "2021-01-01"}),
        api.tenant_a.put("/v1/prices/currency", json={"name": "USD"}),
        api.tenant_a.delete("/v1/prices/vcpus/2020-01-01"),
    ):
        assert answer.status_code == 403
    gone = api.operator.delete("/v1/prices/vcpus/2020-01-01")
    assert gone.json() == made.json()
    assert api.operator.delete("/v1/prices/vcpus/2020-01-01").status_code == 404


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("price", text) for text in ("NaN", "1e999", "-1", "", "0x10", "1,5", "٣", 0.1, True)),
        ("price", "1." + "0" * 16),
        *(("since", text) for text in ("2020-02-30", "20200101", "2020-01-01T00:00:00Z", 20200101)),
        ("resource", "gpu"),
        ("vm_type", "huge"),
    ],
)
def test_hostile_prices_are_refused_with_their_field(api: Api, field: str, value: object) -> None:
    api.operator.put("/v1/prices/currency", json={"name": "EUR"})

    answer = api.operator.post("/v1/prices", json={**PRICE, field: value})

    assert answer.status_code == 422, answer.text
    assert field in answer.text


def test_the_command_sets_lists_and_removes_prices(
    register: Registry, raw: RawSql, fuga: Fuga
) -> None:
    for name in "ab":
        add_tenant(register, name)
    add_vm_type(register)
    let_run(register, raw)

    assert "no prices" in fuga("price", "list")
    assert "rounded to 2 decimal places" in fuga("price", "currency", "EUR")
    fuga("price", "set", "vcpus", "1", "per", "hour", "--from", "2020-01-01")
    fuga("price", "set", "vcpus", "0.5", "--from", "2020-03-02")
    small = fuga("price", "set", "vms", "0.0000001", "--from", "2020-01-01", "--type", "small")
    fuga("price", "set", "vcpus", "9", "--from", "2099-01-01")
    listed, versions = fuga("price", "list"), fuga("price", "history", "-o", "csv")
    usage = fuga("usage", "--month", "2020-03", "--by", "tenant")
    csv = fuga("usage", "--month", "2020-03", "--tenant", "a", "-o", "csv")
    removed = fuga("price", "rm", "vms", "--from", "2020-01-01", "--type", "small")

    assert small == "price of vms of type small from 2020-01-01: 0.0000001 per hour\n"
    assert [line.split() for line in listed.splitlines()[2:5]] == [
        ["vms", "small", "2020-01-01", "0.0000001"],
        ["vcpus", "-", "2020-03-02", "0.5"],
        ["vcpus", "-", "2099-01-01", "9"],
    ]
    assert versions.splitlines()[0] == "resource,vm_type,since,price"
    assert len(versions.splitlines()) == 5
    assert "total: 768.00 EUR" in usage  # of two tenants: a day at 1, 30 at 0.5
    assert ["a", "vcpus", "744.000", "744.000", "384.00"] in [
        line.split() for line in usage.splitlines()
    ]
    assert max(map(len, (usage + listed).splitlines())) <= 80
    assert ",vcpus,2678400.000000,2678400.000000,384.00" in csv
    assert "removed" in removed


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("vcpus", "NaN"), "wanted a decimal number"),
        (("vcpus", "1e999"), "wanted a decimal number"),
        (("vcpus", "1", "per", "month"), "wanted per hour"),
        (("vcpus", "1", "--from", "2026-02-30"), "wanted a day"),
        (("vcpus", "1", "--from", "1999-01-01"), "--from"),
        (("gpu", "1"), "RESOURCE"),
        (("vcpus", "1", "--type", "huge"), "--type"),
        (("vcpus", "9999999999"), "PRICE"),
    ],
)
def test_the_command_says_what_is_wrong_with_a_price(
    register: Registry, fuga: Fuga, words: tuple[str, ...], said: str
) -> None:
    fuga("price", "currency", "EUR")

    assert said in fuga("price", "set", *words, status=2)
