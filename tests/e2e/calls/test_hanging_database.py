"""A PostgreSQL that hangs: callers are told so soon, and nothing is lost or done twice."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import httpx
import pytest

from controller.rest import create_app
from registry import Registry
from tests.e2e.conftest import a_token
from tests.raw_sql import RawSql, raw_sql
from tests.register import add_tenant, add_vm_type
from tests.servers.postgres import TEMPLATE, PostgresServer
from tests.servers.running import eventually
from tests.servers.serving import served

pytestmark = pytest.mark.postgresql

CALLS = 300
#: Only against a hang: the code waits ten seconds, on a machine that may have other work.
PATIENCE_S = 120.0


@dataclass(frozen=True)
class Site:
    """An API on a database of its own, called over real HTTP."""

    server: PostgresServer
    registry: Registry
    client: httpx.Client
    raw: RawSql

    def ask(self, key: str) -> httpx.Response:
        return self.client.post(
            "/v1/requests",
            json={"vm_type": "small", "count": 1, "name": key},
            headers={"Idempotency-Key": key},
        )


@pytest.fixture
def site(postgres: PostgresServer) -> Iterator[Site]:
    with postgres.database(template=TEMPLATE) as url, raw_sql(url) as raw:
        registry = Registry.connect(url)
        try:
            add_tenant(registry, "a")
            add_vm_type(registry, "small")
            token = a_token(registry, "a")
            limits = httpx.Limits(max_connections=CALLS)
            with (
                served(create_app(registry)) as api,
                httpx.Client(
                    base_url=api,
                    headers={"Authorization": f"Bearer {token}"},
                    limits=limits,
                    timeout=PATIENCE_S,
                ) as client,
            ):
                yield Site(postgres, registry, client, raw)
        finally:
            registry.close()


def all_at_once(call: Callable[[int], httpx.Response]) -> list[httpx.Response]:
    with ThreadPoolExecutor(CALLS) as callers:
        return list(callers.map(call, range(CALLS)))


def test_while_it_hangs_every_call_is_answered_and_then_all_is_as_before(site: Site) -> None:
    assert site.ask("before").status_code == 201

    with site.server.stopped():
        answers = all_at_once(lambda number: site.ask(f"call-{number}"))
        assert Counter(answer.status_code for answer in answers) == {503: CALLS}
        assert {answer.json()["code"] for answer in answers} <= {"not_ready", "overloaded"}
        assert all(int(answer.headers["Retry-After"]) > 0 for answer in answers)
        # By now it is known, and nobody waits.
        assert site.client.get("/v1/requests", timeout=2).status_code == 503
        assert site.client.get("/healthz").status_code == 200
        assert site.client.get("/readyz").status_code == 503

    eventually(lambda: site.client.get("/readyz").status_code == 200, within_s=PATIENCE_S)
    assert {site.ask(f"call-{number}").status_code for number in range(CALLS)} == {201}
    assert site.raw.value("SELECT count(*) FROM requests") == CALLS + 1
    assert site.registry.check() == []


def test_a_call_whose_commit_hung_is_done_once_whether_it_was_committed_or_not(site: Site) -> None:
    site.raw.run(
        "CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN PERFORM pg_sleep(10); RETURN NULL; END $$"
    )
    site.raw.run(
        "CREATE CONSTRAINT TRIGGER hold AFTER INSERT ON requests DEFERRABLE INITIALLY DEFERRED"
        " FOR EACH ROW EXECUTE FUNCTION hold()"
    )
    committing = (
        "SELECT count(*) FROM pg_stat_activity WHERE query = 'COMMIT' AND wait_event = 'PgSleep'"
    )
    shown: list[httpx.Response] = []
    caller = threading.Thread(target=lambda: shown.append(site.ask("key")))
    caller.start()
    eventually(lambda: site.raw.value(committing), every_s=0.05)

    with site.server.stopped():
        caller.join(PATIENCE_S)
        assert [answer.status_code for answer in shown] == [503]

    # The server goes on with the commit that it was at; nobody listens to how it ends.
    eventually(lambda: site.raw.value("SELECT count(*) FROM requests"), within_s=PATIENCE_S)
    [committed] = site.raw.rows("SELECT id FROM requests")
    eventually(lambda: site.client.get("/readyz").status_code == 200, within_s=PATIENCE_S)

    again = site.ask("key")
    assert (again.status_code, again.json()["id"]) == (201, str(committed["id"]))
    assert site.raw.value("SELECT count(*) FROM requests") == 1
    assert site.registry.check() == []


def test_a_slow_statement_is_not_taken_for_a_server_that_hangs(site: Site) -> None:
    site.raw.run(
        "CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN PERFORM pg_sleep(12); RETURN NULL; END $$"
    )
    site.raw.run(
        "CREATE TRIGGER hold AFTER INSERT ON requests FOR EACH STATEMENT EXECUTE FUNCTION hold()"
    )

    assert site.ask("slow").status_code == 201
