"""Which addresses of a subnet are given to VMs."""

from __future__ import annotations

import pytest

from registry import InvalidError
from registry.networks import Subnet
from registry.subnets import address_text, check_subnet, reachable_ranges, usable_addresses


def test_neither_the_networks_own_addresses_nor_what_is_excluded_is_given():
    subnet = check_subnet(
        Subnet(
            cidr="10.0.0.0/28", gateway="10.0.0.1", excluded=("10.0.0.3 - 10.0.0.9", "10.0.0.14")
        )
    )

    assert [address_text(each) for each in usable_addresses(subnet)] == [
        "10.0.0.2",
        *(f"10.0.0.{last}" for last in range(10, 14)),
    ]
    assert subnet.excluded == ("10.0.0.3-10.0.0.9", "10.0.0.14")


@pytest.mark.parametrize(
    ("field", "subnet"),
    [
        ("subnet.cidr", Subnet(cidr="10.0.0.1/24")),
        ("subnet.cidr", Subnet(cidr="10.0.0.0/8")),
        ("subnet.cidr", Subnet(cidr="10.0.0.0/31")),
        ("subnet.cidr", Subnet(cidr="hello")),
        ("subnet.cidr", Subnet(cidr="10.0.0.0/32")),
        ("subnet.cidr", Subnet(cidr="0.0.0.0/16")),
        ("subnet.cidr", Subnet(cidr="0.255.255.0/24")),
        ("subnet.cidr", Subnet(cidr="127.0.0.0/16")),
        ("subnet.cidr", Subnet(cidr="127.255.255.252/30")),
        ("subnet.cidr", Subnet(cidr="169.254.0.0/16")),
        ("subnet.cidr", Subnet(cidr="169.254.169.252/30")),
        ("subnet.cidr", Subnet(cidr="224.0.0.0/24")),
        ("subnet.cidr", Subnet(cidr="239.255.0.0/255.255.0.0")),
        ("subnet.cidr", Subnet(cidr="240.0.0.0/24")),
        ("subnet.cidr", Subnet(cidr="255.255.255.252/30")),
        ("subnet.cidr", Subnet(cidr="::1/128")),
        ("subnet.cidr", Subnet(cidr="fd00::/64")),
        ("subnet.cidr", Subnet(cidr="::ffff:10.0.0.0/120")),
        ("subnet.gateway", Subnet(cidr="10.0.0.0/24", gateway="10.0.1.1")),
        ("subnet.gateway", Subnet(cidr="10.0.0.0/24", gateway="::ffff:10.0.0.1")),
        ("subnet.gateway", Subnet(cidr="10.0.0.0/24", gateway="10.0.0.255")),
        ("subnet.dns", Subnet(cidr="10.0.0.0/24", dns=("x",))),
        ("subnet.dns", Subnet(cidr="10.0.0.0/24", dns=("127.0.0.53",))),
        ("subnet.dns", Subnet(cidr="10.0.0.0/24", dns=("0.0.0.0",))),
        ("subnet.dns", Subnet(cidr="10.0.0.0/24", dns=("224.0.0.251",))),
        ("subnet.dns", Subnet(cidr="10.0.0.0/24", dns=("255.255.255.255",))),
        ("subnet.dns", Subnet(cidr="10.0.0.0/24", dns=("10.0.0.0",))),
        ("subnet.dns", Subnet(cidr="10.0.0.0/24", dns=("10.0.0.255",))),
        ("subnet.dns", Subnet(cidr="10.0.0.0/24", dns=("::ffff:10.0.0.1",))),
        ("subnet.excluded", Subnet(cidr="10.0.0.0/24", excluded=("10.0.0.9-10.0.0.2",))),
        ("subnet.excluded", Subnet(cidr="10.0.0.0/24", excluded=("10.0.0.1-10.0.0.254",))),
        ("subnet.excluded", Subnet(cidr="10.0.0.0/24", excluded=("10.0.0.1",) * 65)),
    ],
)
def test_a_faulty_subnet_is_refused(field: str, subnet: Subnet):
    with pytest.raises(InvalidError) as raised:
        check_subnet(subnet)
    assert raised.value.field == field


def test_a_special_range_is_refused_with_its_use():
    with pytest.raises(InvalidError, match=r"outside 127\.0\.0\.0/8 \(loopback\)"):
        check_subnet(Subnet(cidr="127.0.0.0/16"))


def test_a_subnet_that_is_written_with_its_mask_is_stored_by_its_length():
    assert check_subnet(Subnet(cidr="10.77.0.0/255.255.255.0")).cidr == "10.77.0.0/24"


def test_the_name_servers_of_a_subnet_are_not_given_to_vms():
    subnet = check_subnet(Subnet(cidr="10.0.0.0/29", dns=("10.0.0.3", "169.254.169.253")))

    assert [address_text(each) for each in usable_addresses(subnet)] == [
        f"10.0.0.{last}" for last in (1, 2, 4, 5, 6)
    ]


def test_isolated_vms_reach_what_is_never_given_to_a_vm():
    subnet = Subnet(
        cidr="10.0.0.0/24",
        gateway="10.0.0.1",
        dns=("10.0.0.2", "192.0.2.53"),
        excluded=("10.0.0.3-10.0.0.9", "10.0.0.8"),
    )

    assert reachable_ranges(check_subnet(subnet)) == (
        "10.0.0.1/32",
        "10.0.0.2/31",
        "10.0.0.4/30",
        "10.0.0.8/31",
    )


def test_what_is_too_scattered_for_a_host_to_look_at_is_not_told():
    odd = tuple(f"10.0.0.{last}" for last in range(1, 61, 2))

    assert reachable_ranges(check_subnet(Subnet(cidr="10.0.0.0/24", excluded=odd))) is None
