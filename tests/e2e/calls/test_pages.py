"""Lists come in pages that neither skip nor repeat."""

from __future__ import annotations

import pytest

from tests.e2e.conftest import Api
from tests.problems import places, the_problem
from tests.register import add_host, add_tenant


@pytest.mark.parametrize("path", ["/v1/requests", "/v1/vms", "/v1/vm-types", "/v1/tenants"])
def test_walking_the_pages_sees_everything_once(api: Api, path: str):
    for number in range(5):
        body = {"vm_type": "small", "count": 1, "name": f"r{number}", "tenant": "a"}
        api.operator.post("/v1/requests", json=body)
        api.operator.post("/v1/tenants", json={"name": f"t{number}"})
        resources = {"vcpus": 1, "memory_mib": 1}
        api.operator.post("/v1/vm-types", json={"name": f"t{number}", "resources": resources})
    whole = api.operator.get(path).json()

    seen, cursor = [], None
    while True:
        query = {"limit": "2"} if cursor is None else {"limit": "2", "cursor": cursor}
        page = api.operator.get(path, params=query).json()
        assert len(page["items"]) <= 2
        seen += page["items"]
        cursor = page["next"]
        if cursor is None:
            break

    assert seen == whole["items"]
    assert whole["next"] is None


@pytest.mark.parametrize(
    "path", ["requests", "vms", "vm-types", "tenants", "hosts", "rounds", "tokens"]
)
@pytest.mark.parametrize("cursor", ["x", "e30", "WzFd", "WyJhIiwiYiJd", "W3t9XQ", "a" * 500])
def test_a_cursor_of_nobody_is_refused(api: Api, path: str, cursor: str):
    answer = api.operator.get(f"/v1/{path}", params={"cursor": cursor})

    if answer.status_code != 200:  # a list by name may take any name for its cursor
        assert places(the_problem(answer, 422, "invalid")) == ["cursor"]


@pytest.mark.parametrize("limit", ["0", "-1", "501", "many", "1.5", ""])
def test_a_limit_out_of_bounds_is_refused(api: Api, limit: str):
    answer = api.operator.get("/v1/requests", params={"limit": limit})

    assert places(the_problem(answer, 422, "invalid")) == ["limit"]


def test_a_filter_that_does_not_exist_is_refused_and_not_ignored(api: Api):
    answer = api.operator.get("/v1/requests", params={"tennant": "a"})

    assert places(the_problem(answer, 422, "invalid")) == ["tennant"]


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        *((path, "tenant") for path in ("requests", "vms", "moves", "reservations", "ssh-keys")),
        *((path, "tenant") for path in ("vm-groups", "events", "counts", "rounds/proofs")),
        ("vms", "host"),
        ("moves", "host"),
        ("volumes", "tenant"),
        ("volumes", "host"),
    ],
)
def test_a_filter_by_a_name_that_nothing_has_is_refused_with_the_nearest(
    api: Api, path: str, kind: str
):
    add_tenant(api.registry, "shop-4")
    add_host(api.registry, "shop-4")

    refused = api.operator.get(f"/v1/{path}", params={kind: "shop4"})

    problem = the_problem(refused, 422, "invalid")
    assert places(problem) == [kind]
    assert "did you mean shop-4?" in problem["detail"]
    assert api.operator.get(f"/v1/{path}", params={kind: "shop-4"}).status_code == 200
