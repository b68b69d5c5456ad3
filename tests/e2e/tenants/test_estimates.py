"""How long will it wait: an estimate from how long VMs lived, or why there is none."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from controller.queries.wait_estimates import WaitingTimes
from controller.queries.wait_forecast import ForecastQuery
from controller.rounds.policy_process import PolicyProcess
from registry.db.ids import lowest_uuid7
from registry.rounds import forecast_inputs as reading
from tests.e2e.conftest import Api
from tests.e2e.slots import run_slot
from tests.e2e.tenants.test_explanations import ask
from tests.raw_sql import RawSql
from tests.register import add_host, remove_vm, run_vm
from tests.servers.running import eventually
from tests.work import work

LIVES = 20


class Kept:
    """A policies' process that outlives those whom it answers."""

    def __init__(self, process: PolicyProcess) -> None:
        self.process, self.asked = process, 0

    def estimates(self, question: ForecastQuery, *, deadline_s: float) -> Any:
        self.asked += 1
        return self.process.estimates(question, deadline_s=deadline_s)

    def close(self) -> None:
        pass


@pytest.fixture
def process(api: Api, decider: PolicyProcess) -> Kept:
    """Let the API ask a process that is there already."""
    kept = Kept(decider)
    services = api.app.state.services
    times = WaitingTimes(services.registry, process=lambda: kept)  # type: ignore[arg-type, return-value]
    api.app.state.services = dataclasses.replace(services, waiting_times=times)
    return kept


def live(api: Api, raw: RawSql, decider: PolicyProcess, number: int) -> None:
    """Let VMs of so many requests live nine minutes each; then VMs of tenant b fill the host."""
    api.registry.processes.register("control", "cc-1", "m", 1, stamp_of=lambda _: "s")
    api.registry.processes.record_heartbeat("control", "cc-1", None)
    add_host(api.registry, "h1", vcpus=LIVES, memory_mib=10**6, disk_gib=10**5)
    for _ in range(number):
        ask(api, 1, tenant="b")
    run_slot(api.registry, decider, 1)
    for vm in api.registry.vms.list(limit=100).items:
        assert vm.assignment_id is not None
        run_vm(api.registry, vm.assignment_id)
        api.operator.delete(f"/v1/vms/{vm.id}")
        remove_vm(api.registry, vm.assignment_id)
    before = raw.before("created_at", "540 seconds")
    raw.run(f"UPDATE assignments SET created_at = {before} WHERE state = 'released'")
    for _ in range(LIVES):
        ask(api, 1, tenant="b")
    run_slot(api.registry, decider, 2)


def decided(api: Api, decider: PolicyProcess) -> None:
    """Let a round of now decide."""
    run_slot(api.registry, decider, 3)
    api.registry.slot_loop.record_decided_slot(datetime.now(UTC), 60.0)


def of_a_past(raw: RawSql, *, days: int, each_day: int) -> None:
    """Let VMs have been made, each an hour long, for so many days; as copies of the first."""
    (vm,) = raw.rows("SELECT * FROM vms ORDER BY id LIMIT 1")
    (place,) = raw.rows("SELECT * FROM assignments WHERE vm_id = ?", vm["id"])
    raw.unguarded()
    at = datetime.now(UTC) - timedelta(days=days)
    rows = []
    for number in range(days * each_day):
        began = at + timedelta(days=number // each_day, minutes=number % each_day)
        key = UUID(int=lowest_uuid7(began).int + number)
        rows.append((key, began))
    for key, began in rows:
        placed, ended = (stored(raw, began + timedelta(hours=each)) for each in (0, 1))
        changed = {"id": raw.key(key), "name": f"past-{key.hex}", "created_at": placed}
        raw.insert("vms", {**vm, **changed, "deleted_at": ended})
        changed = {"id": raw.new_key(), "vm_id": raw.key(key), "created_at": placed}
        raw.insert("assignments", {**place, **changed, "released_at": ended})


def stored(raw: RawSql, moment: datetime) -> Any:
    """Return a time as the database holds it."""
    return moment.strftime("%Y-%m-%d %H:%M:%S.%f") if raw.dialect == "sqlite" else moment


def estimate_for(client: Any, request: str) -> dict[str, Any]:
    """Return the estimate of a request, once it was made."""

    def look() -> dict[str, Any] | None:
        found: dict[str, Any] = client.get(f"/v1/requests/{request}/explanation").json()["estimate"]
        return found if found["unavailable"] != "being_made" else None

    return eventually(look)


def test_a_request_learns_within_what_time_it_may_have_its_place(
    api: Api, raw: RawSql, decider: PolicyProcess, process: Kept
) -> None:
    """Twenty VMs lived nine minutes each, and twenty of some seconds fill the host."""
    live(api, raw, decider, LIVES)
    request = ask(api, 1)
    decided(api, decider)

    shown = estimate_for(api.tenant_a, request)

    assert shown["unavailable"] is None, shown
    # Of tenant b's requests that came today one more may go before it.
    assert shown["median_s"] == 600.0
    assert shown["message"].startswith("half of such requests had their place within 10 minutes")
    assert shown["from_s"] <= shown["median_s"] <= shown["p90_s"]
    assert shown["samples"] == 40
    assert estimate_for(api.operator, request) == shown  # kept, and no other for operators
    assert process.asked == 1


def test_vms_of_requests_that_end_are_expected_to_end_with_them(
    api: Api, raw: RawSql, decider: PolicyProcess, process: Kept
) -> None:
    """All that fills the host ends in 200 s, long before VMs like it have ended by themselves."""
    live(api, raw, decider, LIVES)
    request = ask(api, 1)
    soon = stored(raw, datetime.now(UTC) + timedelta(seconds=200))
    raw.run("UPDATE requests SET expires_at = ? WHERE id <> ?", soon, raw.key(UUID(request)))
    decided(api, decider)

    assert estimate_for(api.tenant_a, request)["median_s"] == 240.0


def test_a_request_that_came_after_the_estimate_waits_for_the_next(
    api: Api, raw: RawSql, decider: PolicyProcess, process: Kept
) -> None:
    live(api, raw, decider, LIVES)
    first = ask(api, 1)
    decided(api, decider)
    estimate_for(api.tenant_a, first)

    second = ask(api, 1)

    assert estimate_for(api.tenant_a, second)["unavailable"] == "new"
    assert process.asked == 1


def test_where_too_little_is_known_nothing_is_said(
    api: Api, raw: RawSql, decider: PolicyProcess, process: Kept
) -> None:
    live(api, raw, decider, LIVES - 1)
    request = ask(api, 1)
    decided(api, decider)

    shown = estimate_for(api.tenant_a, request)

    assert (shown["unavailable"], shown["median_s"], process.asked) == ("too_little_known", None, 0)


def test_where_no_round_has_decided_the_site_is_not_read_for_an_estimate(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(_: object) -> None:
        raise AssertionError("of a large site this is a second's work")

    monkeypatch.setattr(type(api.registry.cluster_queries), "forecast_inputs", read)

    shown = WaitingTimes(api.registry).waiting_time(UUID(ask(api, 1)), patience_s=60)

    assert shown.unavailable == "not_decided"


def test_a_request_that_is_placed_has_no_estimate(api: Api, decider: PolicyProcess) -> None:
    add_host(api.registry)
    request = ask(api, 1)
    run_slot(api.registry, decider)

    found = api.tenant_a.get(f"/v1/requests/{request}/explanation").json()

    assert found["estimate"] is None


def test_what_is_read_is_bounded_however_long_the_history_is(
    api: Api, raw: RawSql, decider: PolicyProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a hundred times more VMs that ended hardly more is read."""
    monkeypatch.setattr(reading, "NEWEST", 5)
    monkeypatch.setattr(reading, "OF_EACH_TIME", 2)
    live(api, raw, decider, LIVES)
    with work() as little:
        before = api.registry.cluster_queries.forecast_inputs()
    of_a_past(raw, days=400, each_day=20)
    raw.run("ANALYZE")

    with work() as much:
        after = api.registry.cluster_queries.forecast_inputs()

    assert len(before.lives) <= 5 + 2 * 14
    assert len(before.lives) < len(after.lives) <= 5 + 2 * 14
    assert max(life.lived_s for life in after.lives if life.ended) == 3600.0
    assert much.units < 3 * little.units
