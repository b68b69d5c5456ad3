"""What a VM holds beyond its type, from the round's read to the guest, on both databases."""

from __future__ import annotations

import pytest

from registry import InvalidError, NotFoundError, Registry
from registry.rounds import Placement
from tests.register import a_cluster, a_commit, add_host, add_request, place, take_lease


@pytest.fixture
def cluster(register: Registry) -> Registry:
    a_cluster(register)
    return register


def committed(registry: Registry, host: str = "h1") -> dict[str, int]:
    return {each.resource: each.committed for each in registry.hosts.get(host).inventories}


def overhead(registry: Registry, amount: int, resource: str = "memory_mib") -> None:
    registry.resources.set_overhead(resource, amount, actor="cli")


def test_a_round_sees_the_overhead_and_the_ledger_holds_it(cluster: Registry) -> None:
    overhead(cluster, 128)
    request = add_request(cluster, 2)

    [seen] = cluster.rounds.read_cluster(take_lease(cluster)).requests
    placed = place(cluster, request, cluster.hosts.get("h1"), 2)

    assert seen.demand == (1, 3072 + 128, 15)
    assert len(placed.assignment_ids) == 2
    assert committed(cluster) == {"vcpus": 2, "memory_mib": 2 * 3200, "disk_gib": 30}
    assert cluster.check() == []


def test_the_guest_gets_what_its_type_says(cluster: Registry) -> None:
    overhead(cluster, 128)
    [assignment_id] = place(cluster, add_request(cluster), cluster.hosts.get("h1")).assignment_ids

    build = cluster.assignments.claim_build(assignment_id, "w1", 60)

    assert build is not None
    assert build.resources == {"vcpus": 1, "memory_mib": 3072, "disk_gib": 15}


def test_what_is_placed_keeps_what_it_holds(cluster: Registry) -> None:
    request = add_request(cluster, 2)
    place(cluster, request, cluster.hosts.get("h1"))

    overhead(cluster, 128)
    place(cluster, request, cluster.hosts.get("h1"))

    assert committed(cluster)["memory_mib"] == 3072 + 3200


def test_a_resource_that_the_type_does_not_name_has_an_overhead_too(cluster: Registry) -> None:
    cluster.resources.add("ports", "ports", actor="cli")
    add_host(cluster, "h9", overrides={"ports": 3})
    overhead(cluster, 2, "ports")

    place(cluster, add_request(cluster), cluster.hosts.get("h9"))

    assert committed(cluster, "h9")["ports"] == 2


def test_a_round_that_counted_with_less_does_not_stand(cluster: Registry) -> None:
    request = add_request(cluster)
    lease = take_lease(cluster)
    [host] = cluster.rounds.read_cluster(lease).hosts

    overhead(cluster, 128)
    part = Placement(request_id=request.id, host_id=host.id, count=1)
    after = cluster.rounds.commit_round(a_commit(lease, (part,), {host.id: host.version}))

    assert after.assignment_ids == ()
    assert after.dropped == (part,)


def test_an_overhead_is_an_amount_of_a_resource_that_there_is(cluster: Registry) -> None:
    with pytest.raises(InvalidError):
        overhead(cluster, -1)
    with pytest.raises(NotFoundError):
        overhead(cluster, 1, "unicorns")
