"""2,000 hosts and 10,000 VMs in the console: what is cut says so, sums and names are of all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from playwright.sync_api import Browser, expect

from benchmarks.registered import ask, connected, load, run_what_was_placed
from controller.rest import create_app
from registry import Registry
from tests.e2e.conftest import a_token
from tests.e2e.web.conftest import PATIENCE_MS, a_tab
from tests.servers.postgres import TEMPLATE, PostgresServer
from tests.servers.serving import served

pytestmark = pytest.mark.postgresql
HOSTS, VMS, WAITING = 2_000, 10_000, 40
TENANTS = 600


@dataclass(frozen=True)
class Site:
    url: str
    operator: str
    last_host: str
    last_vm: str
    last_tenant: str


@pytest.fixture(scope="module")
def site(postgres: PostgresServer) -> Iterator[Site]:
    with postgres.database(template=TEMPLATE) as url:
        loaded = load(url, hosts=HOSTS, running=VMS)
        run_what_was_placed(loaded)
        ask(loaded, WAITING)
        with connected(url) as connection:
            connection.execute(
                "INSERT INTO tenants (id, name, weight, is_group, created_at)"
                " SELECT gen_random_uuid(), 'u' || lpad(n::text, 4, '0'), 1, false, now()"
                " FROM generate_series(1, %s) AS n",
                (TENANTS,),
            )
            hosts = connection.execute("SELECT name FROM hosts ORDER BY name").fetchall()
            vms = connection.execute("SELECT name FROM vms ORDER BY id").fetchall()
        registry = Registry.connect(url)
        try:
            with served(create_app(registry)) as served_at:
                token = a_token(registry, None)
                yield Site(served_at, token, hosts[-1][0], vms[VMS - 1][0], f"u{TENANTS:04}")
        finally:
            registry.close()


def test_sums_are_of_all_and_a_list_that_is_cut_finds_names_among_all(
    browser: Browser, site: Site
) -> None:
    with a_tab(browser, site.url) as tab:
        page = tab.page
        tab.log_in(site.operator)
        expect(page.get_by_role("link", name=f"All {VMS} VMs")).to_be_visible(timeout=PATIENCE_MS)
        expect(page.get_by_text(f"{WAITING} VMs of")).to_be_visible()

        for where, heading, name in (
            ("#/hosts", "Hosts", site.last_host),
            ("#/vms", "VMs", site.last_vm),
        ):
            tab.go(where, heading)
            expect(page.get_by_text("500 (there are more")).to_be_visible(timeout=PATIENCE_MS)
            expect(page.get_by_text("it is looked for among all")).to_be_visible()
            expect(page.get_by_role("link", name=name, exact=True)).to_have_count(0)
            page.get_by_role("searchbox").fill(name)
            expect(page.get_by_role("link", name=name, exact=True).first).to_be_visible(
                timeout=PATIENCE_MS
            )

        tab.go("#/ask", "Request VMs")
        page.locator("input[list=tenants-like]").fill(site.last_tenant[1:])
        options = page.locator("#tenants-like option")
        expect(options).to_have_count(1, timeout=PATIENCE_MS)
        assert options.get_attribute("value") == site.last_tenant

        tab.go("#/plans", "Plans of moves")
        page.get_by_label("Propose a plan").select_option(label="Empty hosts")
        page.get_by_role("combobox", name="Hosts (names").fill(site.last_host)
        options = page.locator("#plan-hosts option")
        expect(options).to_have_count(1, timeout=PATIENCE_MS)
        assert options.get_attribute("value") == site.last_host
        assert tab.faults == []
