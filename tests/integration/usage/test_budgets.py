"""Budgets: what counts, when they warn and end, and what waits then."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pytest

from controller.control_center.budget_meter import BudgetMeter
from registry import ConflictError, InvalidError, Registry, UnknownNameError
from registry.rounds import BUDGET, RequestView, cluster_view
from registry.tenancy import MoveTo
from registry.usage import BudgetUse, budgets
from tests.integration.usage.site import stored
from tests.integration.usage.test_costs import set_price
from tests.raw_sql import RawSql
from tests.register import (
    ACTOR,
    a_cluster,
    add_group,
    add_request,
    add_tenant,
    place,
    run_vm,
    take_lease,
)

APRIL = date(2020, 4, 1)
BEGIN = datetime(2020, 4, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


class Site:
    """A site at a time of our choice; tenant a has a VM with one vCPU since before April."""

    def __init__(self, registry: Registry, raw: RawSql, patch: pytest.MonkeyPatch) -> None:
        self.registry, self.raw = registry, raw
        self.now = BEGIN + 10 * HOUR
        patch.setattr(budgets, "db_now", lambda _: self.now)
        patch.setattr(cluster_view, "db_now", lambda _: self.now)
        (self.host,) = a_cluster(registry)
        self.request = add_request(registry)
        (key,) = place(registry, self.request, self.host).assignment_ids
        run_vm(registry, key)
        since = stored(BEGIN - 5 * HOUR)
        raw.run("UPDATE assignments SET created_at = ?, activated_at = ?", since, since)
        self.lease = take_lease(registry)

    def set(self, owner: str = "a", warn_at: int | None = None, **limits: str | None) -> None:
        amounts = {name: None if each is None else Decimal(each) for name, each in limits.items()}
        self.registry.budgets.set(owner, amounts, warn_at=warn_at, actor=ACTOR)

    def measure(self, hours: int) -> BudgetUse:
        self.now = BEGIN + hours * HOUR
        self.registry.budgets.measure()
        return self.registry.budgets.list().items[0]

    def kinds(self) -> list[str]:
        found = self.registry.events.list()
        return [each.kind for each in found if each.kind.startswith("budget_")]

    def waiting(self) -> list[RequestView]:
        return list(self.registry.rounds.read_cluster(self.lease).requests)


@pytest.fixture
def site(register: Registry, raw: RawSql, monkeypatch: pytest.MonkeyPatch) -> Site:
    return Site(register, raw, monkeypatch)


def test_a_budget_warns_ends_and_begins_anew_with_the_month(site: Site) -> None:
    site.set(vcpus="100")

    states = [(hours, site.measure(hours).state) for hours in (79, 80, 99, 100, 720, 721)]

    assert states == [
        (79, "open"), (80, "near"), (99, "near"), (100, "spent"), (720, "open"), (721, "open")
    ]  # fmt: skip
    assert sorted(site.kinds()) == ["budget_available", "budget_near", "budget_set", "budget_spent"]
    found = site.measure(725)
    assert (found.month, found.used, found.per_hour) == (date(2020, 5, 1), 5, 1)
    assert found.spent_at == datetime(2020, 5, 1, tzinfo=UTC) + 100 * HOUR


def test_new_vms_wait_for_a_spent_budget_until_it_is_raised(site: Site) -> None:
    waiting = add_request(site.registry, 3)
    site.set(vcpus="10")

    (view,) = site.waiting()

    assert view.id == waiting.id
    assert view.shut_out
    assert view.avoid == (site.host.id,)
    assert view.short is not None
    assert (view.short.reason, view.short.count) == (BUDGET, 3)
    assert view.short.detail["budget"] == [
        {"tenant": "a", "resource": "vcpus", "amount": "10", "until": "2020-05-01T00:00:00+00:00"}
    ]
    site.set(vcpus="10.000001")
    (view,) = site.waiting()
    assert view.short is None
    kinds = ["budget_available", "budget_set", "budget_set", "budget_spent"]
    assert sorted(site.kinds()) == kinds


def test_a_group_has_one_budget_for_all_below_it(site: Site) -> None:
    add_group(site.registry, "research")
    for name in "ab":
        site.registry.tenants.update(name, move=MoveTo(parent="research"), actor=ACTOR)
    add_request(site.registry, tenant="b")
    add_tenant(site.registry, "c")
    free = add_request(site.registry, tenant="c")

    site.set("research", vcpus="10")

    assert {view.id: view.shut_out for view in site.waiting()}[free.id] is False
    assert sum(view.shut_out for view in site.waiting()) == 1
    assert [each.tenant for each in site.registry.budgets.get("b").limits] == ["research"]
    events = {
        tenant: [(each.subject_id, each.data.get("group")) for each in found]
        for tenant in ("research", "a", "b", "c")
        if (found := site.registry.events.list(tenant=tenant, kind="budget_spent"))
    }
    assert events == {
        "research": [("research", None)], "a": [("a", "research")], "b": [("b", "research")]
    }  # fmt: skip


def test_budgets_are_listed_in_pages(site: Site) -> None:
    add_tenant(site.registry, "b.c")
    site.set("b.c", vcpus="1", vms="2")
    site.set(vcpus="3", memory_mib="4")

    first = site.registry.budgets.list(limit=3)
    last = site.registry.budgets.list(limit=3, cursor=first.next)

    assert [(each.tenant, each.resource) for each in (*first.items, *last.items)] == [
        ("a", "memory_mib"), ("a", "vcpus"), ("b.c", "vcpus"), ("b.c", "vms")
    ]  # fmt: skip
    assert (len(first.items), last.next) == (3, None)
    with pytest.raises(InvalidError, match="cursor"):
        site.registry.budgets.list(cursor="x")


def test_costs_are_those_of_usage_and_follow_the_prices(site: Site) -> None:
    site.registry.prices.set_currency("EUR", actor=ACTOR)
    set_price(site.registry, "vcpus", "0.333", APRIL)
    site.set(cost="3.34", vms="100")

    found = site.measure(10)

    usage = site.registry.usage.read(since=BEGIN, until=site.now, tenant="a")
    assert (found.resource, found.used, found.state) == ("cost", usage.cost, "near")
    assert found.used == Decimal("3.33")
    assert site.measure(11).state == "spent"
    set_price(site.registry, "vcpus", "0.1", date(2020, 4, 2))
    set_price(site.registry, "memory_mib", "0", APRIL)
    site.registry.prices.remove("vcpus", APRIL, actor=ACTOR)
    assert site.measure(11).state == "open"
    assert site.measure(24 + 20).used == 2


def test_a_clock_that_steps_back_gives_what_was_used_until_then(site: Site) -> None:
    site.set(vcpus="20")
    assert site.measure(20).state == "spent"

    assert site.measure(19).used == 19
    assert site.measure(-2).month == date(2020, 3, 1)
    assert site.waiting() == []
    assert site.measure(20).state == "spent"


def test_vms_that_lost_their_place_are_placed_all_the_same(site: Site) -> None:
    site.set(vcpus="10")
    add_request(site.registry, 3)
    # One of its VMs had a place, and lost it with its host.
    site.raw.run(
        "UPDATE vms SET generation = 1 WHERE id = (SELECT id FROM vms ORDER BY id DESC LIMIT 1)"
    )

    (view,) = site.waiting()

    assert (view.count, view.min_count, view.shut_out) == (1, 1, False)
    assert view.short is not None
    assert (view.short.reason, view.short.count) == (BUDGET, 2)


def test_bad_budgets_are_refused(site: Site) -> None:
    with pytest.raises(ConflictError, match="no currency"):
        site.set(cost="1")
    site.registry.prices.set_currency("EUR", actor=ACTOR)
    with pytest.raises(InvalidError, match="at most 2 decimal places"):
        site.set(cost="1.001")
    with pytest.raises(UnknownNameError, match="cost"):
        site.set(gold="1")
    with pytest.raises(InvalidError):
        site.set(vcpus="-1")
    with pytest.raises(InvalidError):
        site.set(vcpus="1", warn_at=0)
    assert site.registry.budgets.list().items == ()


def test_setting_the_same_again_is_no_event_and_none_removes(site: Site) -> None:
    site.set(vcpus="50.0")
    site.set(vcpus="50")
    assert site.kinds() == ["budget_set"]

    site.set(vcpus=None)

    assert site.registry.budgets.list().items == ()
    assert site.kinds() == ["budget_set", "budget_set"]


def test_the_control_centre_that_leads_measures(site: Site) -> None:
    site.set(vcpus="100")
    site.now = BEGIN + 100 * HOUR
    clock = type("Clock", (), {"now": lambda _: site.now})()
    leads = [False]
    meter = BudgetMeter(site.registry, lambda: site.lease if leads[0] else None, clock)

    assert meter.measure() == 0
    leads[0] = True
    assert meter.measure() == 1
    assert site.registry.budgets.list().items[0].state == "spent"
