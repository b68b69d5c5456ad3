"""Closed months stay as they are, in a chain, and are what the events and prices say."""

from __future__ import annotations

import threading
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from controller.control_center.purge import Purger
from controller.session.closed_usage import verify_entries
from controller.session.json_shapes import ProofError
from registry import ConflictError, InvalidError, Registry, UnknownNameError
from registry.admin import Periods
from registry.rounds import HeadSigner, PrivateKey, write_private_key
from registry.tenancy import MoveTo
from registry.usage import ClosedEntry
from tests.integration.usage.site import DAY, START, Site, add_ended_vm, all_events, stored, sums_of
from tests.integration.usage.test_costs import expected_cents, set_price
from tests.raw_sql import REFUSED, RawSql
from tests.register import (
    ACTOR,
    a_cluster,
    add_group,
    add_request,
    add_tenant,
    place,
    remove_vm,
    run_vm,
    take_lease,
)

MARCH, APRIL, MAY = (date(2020, month, 1) for month in (3, 4, 5))


def begin(month: date) -> datetime:
    return datetime(month.year, month.month, 1, tzinfo=UTC)


def close(registry: Registry, month: date) -> None:
    registry.closed_months.close(month, actor=ACTOR)


def documents(registry: Registry, tenant: str | None = None) -> list[dict[str, object]]:
    """Return all entries as the API writes them, newest first."""
    found: list[dict[str, object]] = []
    cursor = None
    while True:
        page = registry.closed_months.list(tenant=tenant, cursor=cursor)
        found += [TypeAdapter(ClosedEntry).dump_python(each, mode="json") for each in page.items]
        if (cursor := page.next) is None:
            return found


@pytest.fixture
def ended(register: Registry, raw: RawSql) -> Registry:
    """Tenant a had a VM with one vCPU from noon on 30 March 2020 until noon on 2 April."""
    add_ended_vm(register, raw, START + 29.5 * DAY, START + 32.5 * DAY)
    while register.usage.add_ended():
        pass
    register.prices.set_currency("EUR", actor=ACTOR)
    set_price(register, "vcpus", "0.5", MARCH)
    return register


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(3))
def test_closed_months_are_what_the_events_and_prices_say(
    register: Registry, raw: RawSql, seed: int
) -> None:
    site = Site(register, raw, seed)
    site.live_for(25)
    events = all_events(register)
    register.prices.set_currency("EUR", actor=ACTOR)
    prices = [
        set_price(register, resource, price, MARCH + timedelta(days=day), vm_type)
        for resource, price, day, vm_type in (
            ("vcpus", "0.0271", 0, None),
            ("vcpus", "0.5", site.draw.randint(1, 60), None),
            ("memory_mib", "0.0000048828125", site.draw.randint(0, 60), "large"),
        )
    ]
    while register.usage.add_ended():
        pass
    months = [MARCH, APRIL, MAY]
    for month in months:
        close(register, month)
    before = raw.rows("SELECT * FROM closed_usage_lines ORDER BY entry, position")
    # What happens later changes nothing: a tenant moves to another group, times are corrected.
    register.tenants.update("b", move=MoveTo(parent=None), actor=ACTOR)
    raw.run("UPDATE assignments SET activated_at = created_at WHERE activated_at IS NOT NULL")

    for since, until in ((MARCH, APRIL), (APRIL, MAY), (MARCH, MAY)):
        for by in ("tenant", "group", "type"):
            usage = register.usage.read(since=begin(since), until=begin(until), by=by)
            found = {
                (each.name, each.resource): int(each.cost * 100)
                for each in usage.items
                if each.cost is not None
            }
            period = begin(since), begin(until)
            assert found == expected_cents(site, events, *period, by, prices)
            assert sums_of(usage) == site.expected(events, *period, by)

    assert before == raw.rows("SELECT * FROM closed_usage_lines ORDER BY entry, position")
    verified = verify_entries(documents(register))
    assert (verified.entries, verified.last_month) == (3, "2020-05")
    for tenant in "ab":
        of_tenant = verify_entries(documents(register, tenant))
        assert of_tenant.link == verified.link


def test_a_month_is_closed_a_day_after_its_end_and_after_the_one_before(ended: Registry) -> None:
    now = ended.now()
    this = now.date().replace(day=1)
    with pytest.raises(ConflictError, match="can be closed from"):
        close(ended, this)
    with pytest.raises(ConflictError, match="can be closed from 2020-04-02 00:00 UTC"):
        ended.closed_months.close(MARCH, by=begin(APRIL) + 0.9 * DAY, actor=ACTOR)
    ended.closed_months.close(MARCH, by=begin(APRIL) + DAY, actor=ACTOR)
    for month, said in (
        (MARCH, "is closed already"),
        (date(2020, 2, 1), "before the first month"),
        (MAY, "cannot be closed before 2020-04"),
    ):
        with pytest.raises(ConflictError, match=said):
            close(ended, month)
    with pytest.raises(InvalidError):
        close(ended, date(2020, 4, 2))


def test_a_month_with_assignments_that_are_not_added_stays_open(
    ended: Registry, raw: RawSql
) -> None:
    raw.run("DELETE FROM daily_usage")
    raw.run("UPDATE assignments SET in_daily_usage = ?", False)

    close(ended, MARCH)  # the VM ended in April
    with pytest.raises(ConflictError, match="not added to usage yet"):
        close(ended, APRIL)


def test_a_closed_month_keeps_its_prices_and_its_currency(ended: Registry) -> None:
    close(ended, MARCH)

    with pytest.raises(InvalidError, match="a day from 2020-04-01 on"):
        set_price(ended, "vcpus", "1", date(2020, 3, 31))
    with pytest.raises(InvalidError, match="the months before are closed"):
        ended.prices.remove("vcpus", MARCH, actor=ACTOR)
    with pytest.raises(ConflictError, match="currency stays"):
        ended.prices.set_currency("USD", actor=ACTOR)
    set_price(ended, "vcpus", "1", APRIL)
    usage = ended.usage.read(since=begin(MARCH), until=begin(MAY))
    assert usage.cost == Decimal("0.5") * 36 + 36


def test_a_correction_is_a_row_of_its_own(ended: Registry) -> None:
    with pytest.raises(ConflictError, match="is not closed"):
        ended.closed_months.correct(MARCH, "a", Decimal(-1), reason="r", actor=ACTOR)
    close(ended, MARCH)
    ended.closed_months.correct(MARCH, "a", Decimal("-2.50"), reason="an outage", actor="carol")

    month = {"since": begin(MARCH), "until": begin(APRIL)}
    for by in ("tenant", "type", "label:team", None):
        usage = ended.usage.read(**month, by=by)
        last = usage.items[-1]
        assert (last.resource, last.held, last.cost) == ("correction", 0, Decimal("-2.50"))
        assert usage.cost == Decimal("15.50")
    assert ended.usage.read(since=begin(MARCH), until=begin(APRIL) - DAY).cost == 6
    assert ended.usage.read(**month, tenant="b").items == ()
    event = all_events(ended)[-1]
    assert (event.kind, event.actor, event.reason) == ("usage_corrected", "carol", "an outage")
    assert (event.tenant, event.subject_id) == ("a", "2020-03")


@pytest.mark.parametrize("cost", ["0", "NaN", "sNaN", "Infinity", "0.001", "1e13", "1e1", "-1e999"])
def test_absurd_corrections_are_refused(ended: Registry, cost: str) -> None:
    close(ended, MARCH)
    with pytest.raises(InvalidError, match="cost: found"):
        ended.closed_months.correct(MARCH, "a", Decimal(cost), reason="r", actor=ACTOR)
    with pytest.raises(UnknownNameError):
        ended.closed_months.correct(MARCH, "nobody", Decimal(1), reason="r", actor=ACTOR)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE closed_usage SET author = 'mallory'",
        "UPDATE closed_usage SET month = '2021-01-01'",
        "UPDATE closed_usage SET currency = NULL",
        "DELETE FROM closed_usage",
        "UPDATE closed_usage_lines SET cost = '0'",
        "UPDATE closed_usage_lines SET charged_us = charged_us + 1",
        "DELETE FROM closed_usage_lines",
    ],
)
def test_the_database_refuses_changes(ended: Registry, raw: RawSql, statement: str) -> None:
    close(ended, MARCH)
    close(ended, APRIL)

    with pytest.raises(REFUSED, match="ledger: a closed month"):
        raw.run(statement)
    if raw.dialect == "postgresql":
        with pytest.raises(REFUSED, match="ledger: a closed month"):
            raw.run("TRUNCATE closed_usage, closed_usage_lines")


def test_a_signature_is_added_once(ended: Registry, raw: RawSql) -> None:
    close(ended, MARCH)
    raw.run("UPDATE closed_usage SET signed_by = 'k', signature = 's'")
    with pytest.raises(REFUSED, match="immutable"):
        raw.run("UPDATE closed_usage SET signed_by = NULL, signature = NULL")


def test_the_leading_control_centre_signs_what_is_not_signed(
    ended: Registry, tmp_path: Path
) -> None:
    close(ended, MARCH)
    lease = take_lease(ended)
    purger = Purger(ended, lambda: lease, Periods(rounds_days=36_500), interval_s=1)
    purger.sign_closed_months()  # it has no signer
    ended.rounds.signer = HeadSigner(tmp_path / "key.pem")
    purger.sign_closed_months()  # the site has no key
    private, other = PrivateKey.generate(), PrivateKey.generate()
    ended.site_keys.add(private.public_key, instead_of=None, actor=ACTOR)
    purger.sign_closed_months()  # the file is missing
    write_private_key(tmp_path / "key.pem", other)
    purger.sign_closed_months()  # the file has another key
    assert verify_entries(documents(ended)).signed_to == 0

    (tmp_path / "key.pem").unlink()
    write_private_key(tmp_path / "key.pem", private)
    purger.sign_closed_months()
    close(ended, APRIL)
    signed = documents(ended)

    found = verify_entries(signed, keys=[private.public_key])
    assert (found.signed_to, found.signed_by) == (1, private.public_key)
    with pytest.raises(ProofError, match="none of the site's"):
        verify_entries(signed, keys=[other.public_key])
    with pytest.raises(ProofError, match="newest entry is not signed"):
        verify_entries(signed, pinned=private.public_key)
    purger.sign_closed_months()
    assert verify_entries(documents(ended), pinned=private.public_key).signed_to == 2


def test_a_site_without_closed_months_has_nothing_that_its_key_did_not_sign() -> None:
    found = verify_entries([], pinned=PrivateKey.generate().public_key)

    assert (found.entries, found.signed_to, found.signed_by) == (0, 0, None)


@pytest.mark.parametrize("change", ["swap", "drop", "cost", "foreign signature"])
def test_a_forged_document_is_not_verified(ended: Registry, change: str) -> None:
    close(ended, MARCH)
    close(ended, APRIL)
    entries: list[Any] = documents(ended)
    key = PrivateKey.generate()
    match change:
        case "swap":
            entries.reverse()
        case "drop":
            del entries[-1]
        case "cost":
            line = next(
                line
                for leaf in entries[0]["leaves"]
                for line in leaf["lines"]
                if line["cost"] is not None
            )
            line["cost"] = "0.01"
        case _:
            entries[0]["signed"] = {"key": key.public_key, "signature": "00" * 64}
    with pytest.raises(ProofError):
        verify_entries(entries, keys=[key.public_key])


@pytest.mark.parametrize(
    ("table", "assignment"),
    [
        ("closed_usage", "author = 'mallory'"),
        ("closed_usage", "created_at = '2020-05-05 00:00:00.000000'"),
        ("closed_usage", "minor_digits = 3"),
        ("closed_usage_lines", "cost = '1'"),
        ("closed_usage_lines", "tenant = 'b'"),
        ("closed_usage_lines", "held_us = held_us + 1"),
    ],
)
def test_what_is_changed_around_the_triggers_is_found(
    ended: Registry, raw: RawSql, table: str, assignment: str
) -> None:
    close(ended, MARCH)
    close(ended, APRIL)
    assert verify_entries(documents(ended)).entries == 2
    assert verify_entries(documents(ended, "a")).entries == 2

    if raw.dialect == "sqlite":
        for trigger in ("closed_usage_is_immutable", "closed_usage_lines_are_immutable"):
            raw.run(f"DROP TRIGGER {trigger}")
    else:
        raw.run(f"ALTER TABLE {table} DISABLE TRIGGER ALL")
    raw.run(f"UPDATE {table} SET {assignment}")
    with pytest.raises(ProofError):
        verify_entries(documents(ended))


def test_of_two_operators_at_once_one_closes_the_month(ended: Registry) -> None:
    outcomes: list[str] = []
    both = threading.Barrier(2)

    def close_it() -> None:
        both.wait(10)
        try:
            close(ended, MARCH)
            outcomes.append("closed")
        except ConflictError as error:
            outcomes.append(str(error))

    threads = [threading.Thread(target=close_it) for _ in "ab"]
    for each in threads:
        each.start()
    for each in threads:
        each.join(30)

    assert sorted(outcomes) == ["2020-03 is closed already", "closed"]


def test_a_closed_month_keeps_the_group_of_a_tenant_that_leaves(
    register: Registry, raw: RawSql
) -> None:
    (host,) = a_cluster(register)
    add_group(register, "lab")
    add_tenant(register, "c", parent="lab")
    request = add_request(register, tenant="c")
    (key,) = place(register, request, host).assignment_ids
    run_vm(register, key)
    register.requests.delete(request.id, actor=ACTOR)
    remove_vm(register, key)
    raw.run("UPDATE assignments SET created_at = ?", stored(START))
    raw.run("UPDATE assignments SET activated_at = ?", stored(START))
    raw.run("UPDATE assignments SET released_at = ?", stored(START + DAY))
    while register.usage.add_ended():
        pass
    close(register, MARCH)
    register.tenants.remove("c", actor=ACTOR)

    def names(**fields: str) -> set[str | None]:
        usage = register.usage.read(since=begin(MARCH), until=begin(APRIL), **fields)
        return {each.name for each in usage.items}

    assert names(by="tenant") == {"c"}
    assert names(by="group") == names(by="group", group="lab") == {"lab"}
    assert names(by="tenant", tenant="c") == {"c"}
