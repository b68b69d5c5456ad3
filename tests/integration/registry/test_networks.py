"""Networks: MACs for ever, addresses given once, and what happens when there are no more."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from hypervisor.xml.network_filters import ISOLATED_MACS
from registry import ConflictError, DuplicateError, InvalidError, NotFoundError, Registry, VmDesired
from registry.networks import InterfaceRules, NetworkSource, Offers, Subnet, addresses
from tests.raw_sql import RawSql
from tests.register import (
    ACTOR,
    a_cluster,
    a_report,
    add_group,
    add_request,
    add_tenant,
    place,
    remove_vm,
    run_vm,
    take_lease,
)

LAN = NetworkSource(kind="bridge", name="br0")
THREE = Subnet(
    cidr="10.0.0.0/29", gateway="10.0.0.1", dns=("192.0.2.53",), excluded=("10.0.0.2-10.0.0.3",)
)


def add_lan(registry: Registry, subnet: Subnet | None = THREE, **fields):
    return registry.networks.add("lan", actor=ACTOR, subnet=subnet, **({"default": LAN} | fields))


def build(registry: Registry, assignment_id):
    found = registry.assignments.claim_build(assignment_id, "w1", 60)
    assert found is not None
    return found


def vms_of(registry: Registry, request):
    return registry.vms.list(request_id=request.id, include_deleted=True).items


def test_every_vm_has_a_mac_of_its_own_from_the_beginning(register: Registry, raw: RawSql):
    a_cluster(register)

    vms = vms_of(register, add_request(register, 3)) + vms_of(register, add_request(register, 2))

    macs = {vm.mac for vm in vms}
    assert len(macs) == 5
    assert all(mac is not None and mac.startswith("02:") for mac in macs)
    with pytest.raises(Exception, match=r"(?i)unique"):
        raw.run(f"UPDATE interfaces SET mac = '{vms[0].mac}'")


def test_filters_know_isolated_guests_by_the_block_of_their_macs(register: Registry):
    a_cluster(register)
    add_lan(register)
    register.networks.add("own", default=LAN, tenant="a", actor=ACTOR)
    block = ISOLATED_MACS[:6]

    macs = {
        name: [vm.mac or "" for vm in vms_of(register, add_request(register, 3, network=name))]
        for name in (None, "lan", "own")
    }

    assert all(mac.startswith(block) for mac in (*macs[None], *macs["lan"]))
    assert not any(mac.startswith(block) for mac in macs["own"])


def test_a_mac_that_another_vm_had_is_drawn_again(
    register: Registry, monkeypatch: pytest.MonkeyPatch
):
    a_cluster(register)
    [old] = vms_of(register, add_request(register))
    drawn = iter([old.mac, "02:00:00:00:00:01", "02:00:00:00:00:01", "02:00:00:00:00:02"])
    monkeypatch.setattr(addresses, "_random_mac", lambda **_: next(drawn))

    new = vms_of(register, add_request(register, 2))

    assert {vm.mac for vm in new} == {"02:00:00:00:00:01", "02:00:00:00:00:02"}


def test_a_request_that_names_no_network_gets_its_hosts_own(register: Registry):
    [host] = a_cluster(register)
    request = add_request(register)

    [assignment] = place(register, request, host).assignment_ids

    network = build(register, assignment).network
    [vm] = vms_of(register, request)
    assert network is not None
    assert (network.kind, network.source, network.mac) == ("network", "default", vm.mac)
    assert (network.address, vm.network, vm.address, request.network) == (None,) * 4


def test_a_vm_gets_an_address_with_its_place_and_keeps_it_until_it_is_gone(register: Registry):
    [host] = a_cluster(register)
    add_lan(register)
    request = add_request(register, network="lan")
    assert vms_of(register, request)[0].address is None

    [first] = place(register, request, host).assignment_ids
    claimed = build(register, first)
    network = claimed.network
    [vm] = vms_of(register, request)

    assert network is not None
    assert (network.kind, network.source) == ("bridge", "br0")
    assert (network.address, network.gateway) == ("10.0.0.4/29", "10.0.0.1")
    assert network.dns == ("192.0.2.53",)
    assert (vm.network, vm.address) == ("lan", "10.0.0.4")
    assert register.networks.get("lan").addresses_used == 1

    register.vms.delete(vm.id, actor=ACTOR)
    assert register.networks.get("lan").addresses_used == 1  # it may still run
    register.assignments.yield_claim(claimed.claim, None)
    remove_vm(register, first)
    assert register.networks.get("lan").addresses_used == 0
    assert register.vms.get(vm.id).mac == vm.mac


def test_a_vm_built_again_keeps_its_mac_and_its_address(register: Registry):
    [host] = a_cluster(register)
    add_lan(register)
    request = add_request(register, network="lan")
    [first] = place(register, request, host).assignment_ids
    failed = build(register, first)
    register.assignments.record_failure(failed.claim, "no room", transient=False)
    remove_vm(register, first)

    [second] = place(register, request, host).assignment_ids

    again = build(register, second)
    assert again.generation == 2
    assert again.network == failed.network


def test_no_more_are_placed_than_have_addresses_and_the_rest_wait_for_one(register: Registry):
    [host] = a_cluster(register)
    add_lan(register)
    many, other = add_request(register, 2, network="lan"), add_request(register, 2, network="lan")
    lease = take_lease(register)

    place(register, many, host, 2, lease)
    committed = place(register, other, host, 2, lease)

    assert len(committed.assignment_ids) == 1
    assert [part.count for part in committed.dropped] == [1]
    waiting = register.requests.get(other.id).waiting
    assert waiting is not None
    assert (waiting.reason, waiting.count) == ("no_address", 1)
    addresses = {vm.address for vm in (*vms_of(register, many), *vms_of(register, other))}
    assert addresses == {"10.0.0.4", "10.0.0.5", "10.0.0.6", None}


def test_a_gang_that_addresses_break_gives_them_back(register: Registry):
    [host] = a_cluster(register)
    add_lan(register)
    lease = take_lease(register)
    place(register, add_request(register, 2, network="lan"), host, 2, lease)

    gang = add_request(register, 3, min_count=2, network="lan")
    committed = place(register, gang, host, 3, lease)

    assert committed.assignment_ids == ()
    assert register.networks.get("lan").addresses_used == 2


def test_a_round_sees_how_many_addresses_are_left(register: Registry):
    [host] = a_cluster(register)
    add_lan(register)
    lease = take_lease(register)
    place(register, add_request(register, network="lan"), host, 1, lease)
    some = add_request(register, 3, network="lan")
    gang = add_request(register, 3, min_count=3, network="lan")
    free = add_request(register, 3)

    view = {each.id: each for each in register.rounds.read_cluster(lease).requests}

    assert view[some.id].count == 2
    assert view[some.id].short is not None
    assert (view[some.id].short.reason, view[some.id].short.count) == ("no_address", 1)
    assert view[gang.id].avoid == (host.id,)
    assert view[gang.id].short is not None
    assert view[gang.id].short.count == view[gang.id].count == 3
    assert (view[free.id].count, view[free.id].short) == (3, None)


def test_hosts_without_the_network_are_avoided(register: Registry):
    h1, h2 = a_cluster(register, 2)
    here = NetworkSource(kind="network", name="storage-net")
    add_lan(register, None, default=None, hosts={"h2": here})
    request = add_request(register, network="lan")
    lease = take_lease(register)

    [view] = register.rounds.read_cluster(lease).requests
    assert (view.avoid, view.short) == ((h1.id,), None)

    register.networks.change("lan", hosts={"h2": None, "h1": here}, actor=ACTOR)
    [view] = register.rounds.read_cluster(lease).requests
    assert view.avoid == (h2.id,)
    assert register.hosts.get("h1").version > h1.version

    register.networks.change("lan", hosts={"h1": None}, actor=ACTOR)
    [view] = register.rounds.read_cluster(lease).requests
    assert view.short is not None
    assert view.short.reason == "network_missing"
    [assignment] = place(register, request, register.hosts.get("h1"), 1, lease).assignment_ids
    assert build(register, assignment).network is None


def test_a_network_in_use_stays(register: Registry):
    [host] = a_cluster(register)
    add_lan(register)
    request = add_request(register, network="lan")
    [assignment] = place(register, request, host).assignment_ids
    build(register, assignment)

    with pytest.raises(ConflictError, match="used by 2"):
        register.networks.remove("lan", actor=ACTOR)

    vm = register.requests.delete(request.id, actor=ACTOR)
    assert vm.network == "lan"
    assert vms_of(register, request)[0].desired == VmDesired.DELETED
    with pytest.raises(ConflictError, match="lan is used"):
        register.networks.remove("lan", actor=ACTOR)


def test_a_network_that_nobody_uses_goes_and_its_name_may_come_back(register: Registry):
    a_cluster(register)
    add_lan(register)
    request = add_request(register, network="lan")
    register.requests.delete(request.id, actor=ACTOR)
    with pytest.raises(DuplicateError):
        add_lan(register)

    register.networks.remove("lan", actor=ACTOR)

    with pytest.raises(NotFoundError):
        register.networks.get("lan")
    assert register.requests.get(request.id).network is None
    add_lan(register, None)
    assert [network.name for network in register.networks.list().items] == ["lan"]


def test_a_network_is_somewhere_and_its_hosts_exist(register: Registry):
    a_cluster(register)

    with pytest.raises(InvalidError):
        add_lan(register, default=None)
    with pytest.raises(NotFoundError):
        add_lan(register, hosts={"h9": LAN})
    with pytest.raises(NotFoundError):
        add_request(register, network="lan")


def names(registry: Registry, tenant: str | None) -> list[str]:
    return [network.name for network in registry.networks.list(tenant=tenant).items]


def test_a_network_is_there_for_those_whose_it_is_or_to_whom_it_is_offered(register: Registry):
    a_cluster(register)
    add_group(register, "labs")
    add_tenant(register, "physics", parent="labs")
    for name, fields in (
        ("everybodys", {}),
        ("nobodys", {"offered_to": []}),
        ("some", {"offered_to": ["labs"]}),
        ("own", {"tenant": "physics"}),
    ):
        register.networks.add(name, default=LAN, actor=ACTOR, **fields)

    assert names(register, None) == ["everybodys", "nobodys", "own", "some"]
    assert names(register, "physics") == ["everybodys", "own", "some"]
    assert names(register, "b") == ["everybodys"]
    assert register.networks.get("own", tenant="physics").tenant == "physics"
    with pytest.raises(NotFoundError):
        register.networks.get("own", tenant="b")
    add_request(register, tenant="physics", network="own")
    add_request(register, tenant="physics", network="some")
    for tenant, name in (("b", "own"), ("b", "some"), ("physics", "nobodys"), ("b", "never was")):
        with pytest.raises(NotFoundError, match=f"network '{name}' not found"):
            add_request(register, tenant=tenant, network=name)


def test_offers_change_and_what_is_on_a_network_stays_there(register: Registry):
    a_cluster(register)
    add_lan(register)
    request = add_request(register, network="lan")

    taken = register.networks.change("lan", offers=Offers([]), actor=ACTOR)

    assert (taken.offered_to, names(register, "a")) == ((), [])
    assert register.requests.get(request.id).network == "lan"
    given = register.networks.change("lan", offers=Offers(["a"]), actor=ACTOR)
    assert (given.offered_to, names(register, "a")) == (("a",), ["lan"])
    assert register.networks.change("lan", offers=Offers(None), actor=ACTOR).offered_to is None
    with pytest.raises(InvalidError, match="offered_to"):
        register.networks.change("lan", offers=Offers(["nobody"]), actor=ACTOR)


def test_an_owner_keeps_its_network_and_is_not_removed_before_it(register: Registry):
    add_tenant(register, "b")
    own = register.networks.add("own", default=LAN, tenant="b", actor=ACTOR)

    assert (own.tenant, own.offered_to, own.isolated) == ("b", None, False)
    with pytest.raises(InvalidError, match="b's alone"):
        register.networks.change("own", offers=Offers(None), actor=ACTOR)
    with pytest.raises(ConflictError, match="1 network of its own"):
        register.tenants.remove("b", actor=ACTOR)
    register.networks.remove("own", actor=ACTOR)
    register.networks.add("lan", default=LAN, offered_to=["b"], actor=ACTOR)
    register.tenants.remove("b", actor=ACTOR)
    assert register.networks.get("lan").offered_to == ()


def test_guests_of_shared_networks_are_isolated_and_all_are_filtered(register: Registry):
    [host] = a_cluster(register)
    add_lan(register)
    on_lan, elsewhere = add_request(register, network="lan"), add_request(register)
    [first] = place(register, on_lan, host).assignment_ids
    [second] = place(register, elsewhere, host).assignment_ids

    cards = [build(register, key).network.interface_rules for key in (first, second)]

    address = InterfaceRules(
        isolated=True,
        filtered=True,
        address="10.0.0.4",
        subnet="10.0.0.0/29",
        reaches=("10.0.0.1/32", "10.0.0.2/31"),
        gateway="10.0.0.1",
        dns=("192.0.2.53",),
    )
    assert cards == [address, InterfaceRules(isolated=True, filtered=True)]
    register.networks.change("lan", isolated=False, filtered=False, actor=ACTOR)
    changed = register.networks.get("lan")
    assert (changed.isolated, changed.filtered) == (False, False)
    [event] = register.events.list(kind="network_changed")
    assert event.data == {"name": "lan", "isolated": False, "filtered": False}


def bridge(name: str) -> NetworkSource:
    return NetworkSource(kind="bridge", name=name)


@pytest.mark.parametrize(
    "cidr", ["10.77.0.0/25", "10.77.0.0/24", "10.77.0.0/255.255.0.0", "10.77.0.252/30"]
)
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"default": LAN}, {"default": LAN}),
        ({"default": LAN}, {"hosts": {"h1": LAN}}),
        ({"hosts": {"h1": LAN}}, {"default": LAN}),
        ({"hosts": {"h1": LAN}}, {"hosts": {"h2": LAN}}),
        ({"default": bridge("br1"), "hosts": {"h2": LAN}}, {"hosts": {"h2": LAN}}),
    ],
)
def test_subnets_that_overlap_on_one_source_are_refused(
    register: Registry, cidr: str, first, second
):
    a_cluster(register, 2)
    register.networks.add("first", subnet=Subnet(cidr="10.77.0.0/24"), actor=ACTOR, **first)

    with pytest.raises(ConflictError, match=r"overlaps 10\.77\.0\.0/24 of network first on bridge"):
        register.networks.add("second", subnet=Subnet(cidr=cidr), actor=ACTOR, **second)

    assert [network.name for network in register.networks.list().items] == ["first"]
    beside = Subnet(cidr="10.77.1.0/24")
    assert register.networks.add("beside", subnet=beside, actor=ACTOR, **second).warnings == ()


def test_a_network_is_not_mapped_to_a_source_where_its_addresses_are_in_use(register: Registry):
    a_cluster(register, 2)
    whole, half = Subnet(cidr="10.77.0.0/24"), Subnet(cidr="10.77.0.128/25")
    register.networks.add("first", subnet=whole, default=LAN, actor=ACTOR)
    elsewhere = bridge("br1")
    second = register.networks.add("second", subnet=half, default=elsewhere, actor=ACTOR)

    with pytest.raises(ConflictError, match="on bridge br0"):
        register.networks.change("second", hosts={"h2": LAN}, actor=ACTOR)
    with pytest.raises(ConflictError, match="on bridge br1"):
        register.networks.change("first", hosts={"h2": elsewhere}, actor=ACTOR)

    assert second.warnings == (
        "its subnet 10.77.0.128/25 overlaps 10.77.0.0/24 of network first on another source",
    )
    assert register.networks.get("second").hosts == {}
    assert register.check() == []


@pytest.mark.parametrize("source", [bridge("br1"), None])
def test_a_source_counts_until_the_vms_that_use_it_are_gone(register: Registry, source):
    (host,) = a_cluster(register)
    whole, half = Subnet(cidr="10.77.0.0/24"), Subnet(cidr="10.77.0.0/25")
    before = {"default": bridge("br2"), "hosts": {"h1": LAN}}
    register.networks.add("lan", subnet=whole, actor=ACTOR, **before)
    [there] = place(register, add_request(register, network="lan"), host).assignment_ids
    first = run_vm(register, there)
    [left] = register.networks.change("lan", hosts={"h1": source}, actor=ACTOR).warnings
    assert left == "VMs on h1 from before it was mapped again are still on bridge br0"

    with pytest.raises(ConflictError, match="on bridge br0"):
        register.networks.add("second", subnet=half, default=LAN, actor=ACTOR)

    # A VM that comes after the mapping does not keep the old source.
    [later] = place(register, add_request(register, network="lan"), host).assignment_ids
    run_vm(register, later)
    register.vms.delete(first.vm_id, actor=ACTOR)
    remove_vm(register, there)
    assert register.networks.get("lan").warnings == ()
    second = register.networks.add("second", subnet=half, default=LAN, actor=ACTOR)
    assert "on another source" in second.warnings[0]


def test_a_source_that_no_vm_uses_is_free_when_a_mapping_replaces_it(register: Registry):
    a_cluster(register)
    whole = Subnet(cidr="10.77.0.0/24")
    register.networks.add("lan", subnet=whole, hosts={"h1": LAN}, actor=ACTOR)

    register.networks.change("lan", hosts={"h1": bridge("br1")}, actor=ACTOR)

    assert register.networks.add("second", subnet=whole, default=LAN, actor=ACTOR).warnings


@pytest.mark.parametrize(
    ("fields", "warned"),
    [
        ({"subnet": None}, True),
        ({"subnet": None, "filtered": False}, False),  # no rules, whatever the MACs
        ({"subnet": THREE}, False),  # rules match addresses
    ],
)
def test_vms_whose_macs_isolation_does_not_match_are_counted_and_named(
    register: Registry, fields, warned
):
    (host,) = a_cluster(register)
    add_lan(register, isolated=False, **fields)
    request = add_request(register, 2, network="lan")
    place(register, request, host)
    known, gone = vms_of(register, request)
    register.vms.delete(gone.id, actor=ACTOR)
    assert register.check() == []

    changed = register.networks.change("lan", isolated=True, actor=ACTOR)
    add_request(register, network="lan")

    assert len(changed.warnings) == warned
    assert all("they do not isolate 1 VM " in each for each in changed.warnings)
    found = register.check()
    assert len(found) == warned
    assert all("network lan is isolated, but the MACs of 1 VM " in each for each in found)
    assert all(f": {known.name}; replace" in each for each in found)


def test_a_subnet_on_the_network_that_hosts_use_by_dhcp_is_warned_of(register: Registry):
    a_cluster(register)
    own = NetworkSource(kind="network", name="default")

    network = register.networks.add("lan", subnet=THREE, default=own, actor=ACTOR)

    [warning] = network.warnings
    assert "use libvirt network default, too, by DHCP" in warning


def test_of_networks_that_are_added_at_once_one_has_the_addresses(register: Registry):
    def add(number: int) -> str:
        subnet = Subnet(cidr=f"10.77.0.0/{20 + number}")
        return register.networks.add(f"n{number}", subnet=subnet, default=LAN, actor=ACTOR).name

    with ThreadPoolExecutor(4) as threads:
        added = [threads.submit(add, number) for number in range(4)]
    refused = [each.exception() for each in added if each.exception() is not None]

    assert [type(each) for each in refused] == [ConflictError] * 3
    assert len(register.networks.list().items) == 1


def test_overlaps_and_special_ranges_of_earlier_releases_are_found(register: Registry, raw: RawSql):
    a_cluster(register)
    subnets = {"a": "10.1.0.0/24", "b": "10.2.0.0/24", "c": "10.3.0.0/24"}
    for name, cidr in subnets.items():
        subnet = Subnet(cidr=cidr, dns=("10.3.0.5",))
        register.networks.add(name, subnet=subnet, default=LAN, actor=ACTOR)
    raw.run("UPDATE networks SET cidr = '10.1.0.0/25' WHERE name = 'b'")
    raw.run("UPDATE networks SET cidr = '127.0.0.0/24' WHERE name = 'c'")
    raw.run("UPDATE networks SET dns = '[\"10.1.0.9\"]' WHERE name = 'a'")

    overlap, special, server = register.check()

    assert "10.1.0.0/24 of network a overlaps 10.1.0.0/25 of network b on bridge br0" in overlap
    assert "network c is in 127.0.0.0/8 (loopback)" in special
    assert "address 10.1.0.9 of network a is that of its name server, and a VM may" in server


def test_addresses_of_hosts_are_assigned_to_no_vm(register: Registry):
    (host,) = a_cluster(register)
    subnet = Subnet(cidr="10.77.0.0/24", excluded=("10.77.0.7",))
    register.networks.add("before", subnet=subnet, default=LAN, actor=ACTOR)
    report = replace(a_report(hostname="h1"), addresses=("10.77.0.7", "10.77.0.9", "fd00::1"))
    register.hosts.record_report(host.id, report)

    [found] = register.check()
    assert found == "address 10.77.0.9 of network before is that of host h1, and a VM may get it"

    other = {"default": bridge("br1"), "actor": ACTOR}
    refused = r"address 10\.77\.0\.7 of the subnet is that of host h1, and 1 more of it are hosts'"
    with pytest.raises(ConflictError, match=refused):
        register.networks.add("after", subnet=Subnet(cidr="10.77.0.0/24"), **other)
    with pytest.raises(
        ConflictError, match=r"10\.77\.0\.9 of the subnet is that of host h1: exclude"
    ):
        register.networks.add("after", subnet=subnet, **other)

    apart = replace(subnet, excluded=("10.77.0.7", "10.77.0.9"))
    register.networks.add("after", subnet=apart, **other)


def test_a_vm_is_found_by_its_address_and_by_its_mac(register: Registry):
    (host,) = a_cluster(register)
    add_lan(register)
    request = add_request(register, 2, network="lan")
    lease = take_lease(register)
    for key in place(register, request, host, 2, lease).assignment_ids:
        run_vm(register, key)
    one, other = vms_of(register, request)
    assert one.address is not None
    assert one.mac is not None

    def names(**query: Any) -> list[str]:
        return [vm.name for vm in register.vms.list(**query).items]

    assert names(address=one.address) == [one.name]
    assert names(mac=one.mac) == names(mac=one.mac.upper().replace(":", "-")) == [one.name]
    assert names(address="10.9.9.9") == names(mac="02:00:00:00:00:00") == []
    assert names(address=one.address, tenant="nobody's") == []
    assert names(address=one.address, mac=other.mac) == []
    register.vms.delete(one.id, actor=ACTOR)
    remove_vm(register, one.assignment_id)
    assert names(address=one.address) == names(mac=one.mac) == []
    assert names(mac=one.mac, include_deleted=True) == [one.name]
    for wrong in ({"address": "10.0.0"}, {"address": "::1"}, {"mac": "02:00"}, {"mac": ""}):
        with pytest.raises(InvalidError, match="such as"):
            names(**wrong)
