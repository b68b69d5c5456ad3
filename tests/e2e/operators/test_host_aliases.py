"""Operators find out which host a tenant speaks of, and what it calls one."""

from __future__ import annotations

from tests.e2e.conftest import Api, Fuga
from tests.problems import the_problem
from tests.register import add_host, add_tenant


def test_a_name_is_translated_both_ways(api: Api):
    add_host(api.registry, "kvm-07")
    alias = api.alias("kvm-07")
    found = {"tenant": "a", "host": "kvm-07", "alias": alias}

    for name in ("kvm-07", alias):
        answer = api.operator.get("/v1/host-aliases", params={"tenant": "a", "name": name})
        assert answer.json() == {"items": [found]}

    other = api.operator.get("/v1/host-aliases", params={"tenant": "b", "name": alias})
    assert other.json() == {"items": []}
    unknown = api.operator.get("/v1/host-aliases", params={"tenant": "c", "name": alias})
    the_problem(unknown, 404, "not_found")
    own = api.tenant_a.get("/v1/host-aliases", params={"tenant": "a", "name": "kvm-07"})
    the_problem(own, 403, "forbidden")


def test_the_command_tells_it(fuga: Fuga, register):
    add_tenant(register, "a")
    add_host(register, "kvm-07")

    output = fuga("-o", "name", "host", "alias", "kvm-07", "--tenant", "a") + fuga(
        "host", "alias", "kvm-07", "--tenant", "a"
    )
    alias = next(word for word in output.split() if word.startswith("host-"))

    assert "kvm-07" in fuga("host", "alias", alias, "--tenant", "a")
    assert "has no host named" in fuga("host", "alias", "nothing", "--tenant", "a")
