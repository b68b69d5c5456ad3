"""Reservations over REST: their tenant's alone, with one problem for each refusal."""

from __future__ import annotations

from uuid import UUID, uuid4

from tests.e2e.conftest import Api
from tests.integration.rounds.test_reservations import decide
from tests.problems import places, the_problem
from tests.register import add_host

ASKED = {"vm_type": "small", "count": 1, "for_s": 3600, "name": "launch"}


def test_a_tenant_reserves_for_itself_and_no_other_sees_it(api: Api) -> None:
    key = {"Idempotency-Key": str(uuid4())}
    made, again = (api.tenant_a.post("/v1/reservations", json=ASKED, headers=key) for _ in range(2))
    path = f"/v1/reservations/{made.json()['id']}"

    assert (made.status_code, made.json()["state"], made.json()["tenant"]) == (202, "pending", "a")
    assert again.json() == made.json()
    assert api.tenant_b.get("/v1/reservations").json()["items"] == []
    the_problem(api.tenant_b.get(path), 404, "not_found")
    the_problem(api.tenant_b.delete(path), 404, "not_found")
    the_problem(api.tenant_a.post("/v1/reservations", json=ASKED), 409, "duplicate")
    assert api.operator.get(path).json()["name"] == "launch"
    assert api.tenant_a.delete(path).json()["state"] == "cancelled"
    the_problem(api.tenant_a.delete(path), 409, "conflict")


def test_what_cannot_be_drawn_on_is_refused_in_a_word(api: Api) -> None:
    add_host(api.registry, vcpus=2, memory_mib=4096)
    made = api.tenant_a.post("/v1/reservations", json=ASKED).json()
    decide(api.registry, api.registry.reservations.get(UUID(made["id"])))
    request = {"vm_type": "small", "count": 2, "reservation": made["id"]}

    refused = api.tenant_a.post("/v1/requests", json=request)
    problem = the_problem(refused, 409, "reservation_refused")
    assert problem["why"] == "not_enough_left"
    anothers = api.tenant_b.post("/v1/requests", json={**request, "count": 1})
    assert places(the_problem(anothers, 422, "invalid")) == ["#/reservation"]
    drawn = api.tenant_a.post("/v1/requests", json={**request, "count": 1})
    assert (drawn.status_code, drawn.json()["reservation"]) == (201, made["id"])


def test_times_out_of_reach_are_refused(api: Api) -> None:
    for starts_at in (
        *("2001-01-01T00:00:00Z", "2099-01-01T00:00:00Z", "2099-02-30T00:00:00Z"),
        *(
            "9999-12-31T23:59:59-14:00",
            "2099-01-01",
            "2099-01-01T00:00:00",
            "now",
            "",
            "NaN",
            1e300,
        ),
    ):
        refused = api.tenant_a.post("/v1/reservations", json={**ASKED, "starts_at": starts_at})
        assert places(the_problem(refused, 422, "invalid")) == ["#/starts_at"], starts_at
    for for_s in (0, -1, 30 * 86_400 + 1, 2**63, 1.5, "3600", None, True):
        refused = api.tenant_a.post("/v1/reservations", json={**ASKED, "for_s": for_s})
        assert places(the_problem(refused, 422, "invalid")) == ["#/for_s"], for_s


def test_who_only_reads_reserves_and_cancels_nothing(api: Api) -> None:
    made = api.tenant_a.post("/v1/reservations", json=ASKED).json()
    _, secret = api.registry.tokens.create("tenant", "a", "reads", read_only=True, actor="cli")
    reader = api.client(secret)

    assert reader.get("/v1/reservations").json()["items"][0]["name"] == "launch"
    for refused in (
        reader.post("/v1/reservations", json={**ASKED, "name": "other"}),
        reader.delete(f"/v1/reservations/{made['id']}"),
    ):
        assert refused.status_code == 403
