"""Budgets in the web console: a tenant's, with its group's, and those of the site."""

from __future__ import annotations

from decimal import Decimal

from playwright.sync_api import Locator

from registry import Registry
from registry.tenancy import MoveTo
from tests.e2e.conftest import a_token
from tests.e2e.web.conftest import Tab
from tests.register import ACTOR, ON_ANY_DATABASE, add_group

pytestmark = ON_ANY_DATABASE


def panel_of(tab: Tab, heading: str) -> Locator:
    """Return the panel of the overview with this heading."""
    named = tab.page.get_by_role("heading", name=heading, exact=True)
    return tab.page.locator("section.panel").filter(has=named)


def test_a_tenant_sees_its_budgets_and_what_becomes_of_new_vms(
    tab: Tab, token_of_a: str, register: Registry
) -> None:
    add_group(register, "research")
    register.tenants.update("a", move=MoveTo(parent="research"), actor=ACTOR)
    register.budgets.set("research", {"vcpus": Decimal(0)}, actor=ACTOR)
    register.budgets.set("a", {"memory_mib": Decimal(10**9)}, actor=ACTOR)

    tab.log_in(token_of_a)

    panel = panel_of(tab, "Budget")
    panel.get_by_role("row", name="vcpus hours of research").filter(has_text="spent").wait_for()
    panel.get_by_role("row", name="memory (MiB) hours").filter(has_text="open").wait_for()
    panel.get_by_text("at the present rate").first.wait_for()
    panel.get_by_text("new VMs wait for the next month").wait_for()


def test_operators_see_the_budgets_of_which_most_is_used(tab: Tab, register: Registry) -> None:
    register.budgets.set("a", {"vms": Decimal(10**6)}, actor=ACTOR)
    register.budgets.set("b", {"vms": Decimal(0)}, actor=ACTOR)

    tab.log_in(a_token(register, None))

    panel = panel_of(tab, "Budgets")
    panel.get_by_text("1 of 2 are used up").wait_for()
    panel.get_by_role("row").first.filter(has_text="of b").wait_for()
