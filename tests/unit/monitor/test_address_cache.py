"""Addresses that names of hosts resolve to, known without waiting."""

from __future__ import annotations

import threading

from monitor.address_cache import AddressCache, resolve
from tests.servers.running import eventually

URI = "qemu+tls://kvm-01.example.org/system"


def test_an_address_in_the_uri_is_known_at_once_and_a_local_host_has_none() -> None:
    addresses = AddressCache(look_up=lambda _: ("192.0.2.9",))

    assert addresses.addresses_of("qemu+tls://192.0.2.1/system") == ("192.0.2.1",)
    assert addresses.addresses_of("qemu+tls://[2001:db8::1]:16514/system") == ("2001:db8::1",)
    assert addresses.addresses_of("qemu:///system") == ()


def test_a_resolver_that_hangs_holds_no_poll_and_one_that_fails_takes_nothing_back() -> None:
    answered, now = threading.Event(), [0.0]
    answers = iter([("192.0.2.1",), (), ("192.0.2.2",)])
    looked_up: list[str] = []

    def look_up(name: str) -> tuple[str, ...]:
        assert answered.wait(60)
        looked_up.append(name)
        return next(answers)

    addresses = AddressCache(look_up=look_up, now=lambda: now[0])
    assert addresses.addresses_of(URI) == ()
    assert addresses.addresses_of(URI) == ()
    answered.set()
    eventually(lambda: addresses.addresses_of(URI) == ("192.0.2.1",), every_s=0.01)
    assert looked_up == ["kvm-01.example.org"]

    now[0] = 601.0
    assert addresses.addresses_of(URI) == ("192.0.2.1",)
    eventually(lambda: len(looked_up) == 2, every_s=0.01)
    now[0] = 1202.0
    eventually(lambda: addresses.addresses_of(URI) == ("192.0.2.2",), every_s=0.01)


def test_a_name_that_nobody_knows_has_no_address() -> None:
    assert resolve("localhost")
    assert resolve("nobody.invalid") == ()
