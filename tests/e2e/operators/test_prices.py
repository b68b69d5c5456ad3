"""Prices and costs, by REST and on the command line."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from controller.session.closed_usage import verify_entries
from registry import Registry
from registry.rounds import HeadSigner, PrivateKey, write_private_key
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


# ---- closed months -------------------------------------------------------------------------------


def let_it_close(registry: Registry, raw: RawSql) -> None:
    """Run VMs of both tenants since March 2020, at half a euro a vCPU hour."""
    let_run(registry, raw)
    registry.prices.set_currency("EUR", actor="operator")
    registry.prices.set("vcpus", Decimal("0.5"), since=date(2020, 3, 1), actor="operator")


def test_an_operator_closes_and_corrects_and_a_tenant_sees_its_own(api: Api, raw: RawSql) -> None:
    let_it_close(api.registry, raw)
    correction = {"month": "2020-03", "tenant": "a", "cost": "-2.50", "reason": "an outage"}

    early = api.operator.post("/v1/usage/corrections", json=correction)
    this = api.operator.post("/v1/usage/months", json={"month": f"{datetime.now(UTC):%Y-%m}"})
    made = api.operator.post(
        "/v1/usage/months", json={"month": "2020-03"}, headers={"Idempotency-Key": "k"}
    )
    again = api.operator.post(
        "/v1/usage/months", json={"month": "2020-03"}, headers={"Idempotency-Key": "k"}
    )
    corrected = api.operator.post("/v1/usage/corrections", json=correction)
    of_a = api.tenant_a.get("/v1/usage/months").json()["items"]
    of_b = api.tenant_b.get("/v1/usage/months").json()["items"]
    of_all = api.operator.get("/v1/usage/months").json()["items"]

    assert (early.status_code, this.status_code) == (409, 409)
    assert made.status_code == 201, made.text
    assert made.json() == again.json()
    assert corrected.status_code == 201, corrected.text
    assert [each["kind"] for each in of_all] == ["correction", "month"]

    def seen(entries: Any) -> set[str | None]:
        leaves = [leaf for entry in entries for leaf in entry["leaves"]]
        return {leaf["tenant"] for leaf in leaves if leaf["salt"] is not None}

    assert seen(of_a) == {"a"}
    assert seen(of_b) == {"b"}
    assert seen(of_all) == {"a", "b", None}
    assert "outage" not in str(of_b)
    assert "-2.5" not in str(of_b)
    links = {verify_entries(entries).link for entries in (of_a, of_b, of_all)}
    assert links == {corrected.json()["link"]}
    for path, body in (("months", {"month": "2020-04"}), ("corrections", correction)):
        assert api.tenant_a.post(f"/v1/usage/{path}", json=body).status_code == 403
    assert api.tenant_a.get("/v1/usage/months", params={"tenant": "b"}).status_code == 403
    for month in ("2020-13", "2020-3", "2020-03-01", "", 202003):
        answer = api.operator.post("/v1/usage/months", json={"month": month})
        assert answer.status_code == 422


def test_the_command_closes_corrects_and_verifies(
    register: Registry, raw: RawSql, fuga: Fuga, tmp_path: Path
) -> None:
    for name in "ab":
        add_tenant(register, name)
    add_vm_type(register)
    let_it_close(register, raw)
    private = PrivateKey.generate()
    register.site_keys.add(private.public_key, instead_of=None, actor="cli")
    write_private_key(tmp_path / "site-key.pem", private)

    assert "no month is closed" in fuga("usage", "closed")
    assert "no month is closed" in fuga("usage", "verify")
    assert "2020-03 is closed: entry 1" in fuga("usage", "close", "2020-03")
    assert "closed already" in fuga("usage", "close", "2020-03", status=2)
    assert "cannot be closed before 2020-04" in fuga("usage", "close", "2020-06", status=2)
    words = ("usage", "correct", "2020-03", "a", "--reason", "an outage")
    assert "wanted a decimal number" in fuga(*words, "--cost", "NaN", status=2)
    assert "--cost" in fuga(*words, "--cost", "0.001", status=2)
    assert "corrected by -2.50 for a" in fuga(*words, "--cost=-2.50")
    listed = fuga("usage", "closed")
    usage = fuga("usage", "--month", "2020-03", "--by", "tenant")
    unsigned = fuga("usage", "verify", "--key", private.public_key, status=1)
    register.closed_months.sign(HeadSigner(tmp_path / "site-key.pem").sign_entry)
    verified = fuga("usage", "verify", "--key", private.public_key)
    of_tenant = fuga("usage", "verify", "--tenant", "a")

    assert [line.split()[:5] for line in listed.splitlines()[2:]] == [
        ["2", "2020-03", "correction", "-2.50", "EUR"],
        ["1", "2020-03", "month", "744.00", "EUR"],
    ]
    assert ["a", "correction", "0.000", "0.000", "-2.50"] in [
        line.split() for line in usage.splitlines()
    ]
    assert "total: 741.50 EUR" in usage
    assert "NOT VERIFIED: the newest entry is not signed" in unsigned
    assert "verified: 1 months from 2020-03 to 2020-03, 2 entries" in verified
    assert f"signed up to entry 2 by key {private.public_key}" in verified
    assert "verified: 1 months" in of_tenant
