"""Operators ask whether a host or a zone may fail."""

from __future__ import annotations

from tests.e2e.conftest import Api
from tests.register import add_host


def test_whether_any_one_host_may_fail_is_asked_by_operators_alone(api: Api):
    add_host(api.registry, "h1", labels=("zone=east",))
    add_host(api.registry, "h2")

    found = api.operator.get("/v1/capacity/survival", params={"domain": "zone"})

    assert found.status_code == 200, found.text
    assert found.json() == {
        "domain": "zone",
        "domains": 1,
        "hold": 1,
        "not_known": 0,
        "immovable": 0,
        "lacking": [],
    }
    assert api.operator.get("/v1/capacity/survival").json()["domains"] == 2
    for domain in ("rack", "label:", "label:a=b", "label:" + "a" * 99):
        refused = api.operator.get("/v1/capacity/survival", params={"domain": domain})
        assert refused.status_code == 422, domain
    assert api.tenant_a.get("/v1/capacity/survival").status_code == 403
