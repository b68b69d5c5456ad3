"""Tenants' names of hosts: stable, their own, quick to find, and no way back to the host."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

import pytest

from controller.host_aliases import HostNames, Viewer
from registry import InvalidError
from registry.hosts import HostIdentity


@dataclass
class Hosts:
    """A register center of hosts that counts how often it is read."""

    names: list[str]
    reads: int = 0
    retired: set[str] = field(default_factory=set)

    def secret(self) -> bytes:
        return b"s" * 32

    def change_mark(self) -> tuple[int, int]:
        return len(self.names), len(self.retired)

    def all(self) -> list[HostIdentity]:
        self.reads += 1
        return [
            HostIdentity(
                name=name,
                uri=f"qemu+ssh://root@{name}.dc.example/system",
                hostname="localhost.localdomain",
                retired=name in self.retired,
            )
            for name in self.names
        ]


def test_of_12500_hosts_each_has_a_name_and_they_are_read_once():
    hosts = Hosts([f"kvm-{number:05}" for number in range(12_500)])
    names = HostNames(lambda: hosts)

    aliases = {names.alias("a", host): host for host in hosts.names}
    found = [names.resolve_name("a", alias) for alias in list(aliases)[:200]]

    assert len(aliases) == 12_500
    assert all(re.fullmatch(r"host-[a-z2-7]{9}", alias) for alias in aliases)
    assert found == hosts.names[:200]
    assert hosts.reads == 1


def test_another_secret_gives_other_names():
    class Elsewhere(Hosts):
        def secret(self) -> bytes:
            return b"t" * 32

    here, there = HostNames(lambda: Hosts(["h"])), HostNames(lambda: Elsewhere(["h"]))

    assert here.alias("a", "h") != there.alias("a", "h")


def test_a_host_that_is_added_is_known_and_one_that_is_retired_is_not():
    hosts = Hosts(["h1"])
    names = HostNames(lambda: hosts)
    assert names.resolve_name("a", names.alias("a", "h2")) is None

    hosts.names.append("h2")
    assert names.resolve_name("a", names.alias("a", "h2")) == "h2"

    hosts.retired.add("h1")
    assert names.resolve_name("a", names.alias("a", "h1")) is None
    assert "h1" not in Viewer("a", names).redact_text("host h1 is gone")  # old texts still name it


@pytest.mark.parametrize("given", ["h1", "H1", "host-aaaaaaaaa", ""])
def test_what_means_no_host_is_refused_alike(given: str):
    names = HostNames(lambda: Hosts(["h1"]))

    with pytest.raises(InvalidError) as refused:
        Viewer("a", names).resolve_name("hosts", given)

    assert str(refused.value).replace(given, "") == (
        "hosts: host '' not found; use the host names that your VMs show"
        if given
        else str(refused.value)
    )


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("connect to 10.0.0.7:16514 failed", "connect to (an address) failed"),
        ("connect to [fe80::1%eth0]:16514: no route", "connect to (an address): no route"),
        ("fd00:1:2::7 is away", "(an address) is away"),
        ("qemu+ssh://root@n7/system said no", "(its URI) said no"),
        ("open /var/lib/x/y.qcow2: full", "open (a path): full"),
        ("lookup n7.dc.example: no such host", "lookup {n7}: no such host"),
        ("N7 is down; n70 is not", "{n7} is down; n70 is not"),
        ("at 12:30:05 of 3/4 VMs, 50% and and/or", "at 12:30:05 of 3/4 VMs, 50% and and/or"),
        ("localhost answers", "localhost answers"),
        ("VM 01a20391-0f1e-76b3-bb18-4b3534b1790d", "VM 01a20391-0f1e-76b3-bb18-4b3534b1790d"),
    ],
)
def test_what_is_taken_out_of_a_failure(text: str, told: str):
    names = HostNames(lambda: Hosts(["n7"]))

    found = Viewer("a", names).redact_text(text)

    assert found == told.format(n7=names.alias("a", "n7"))


@pytest.mark.parametrize("hostname", ["vm", "VM.dc.example", "room", "running"])
def test_a_machine_that_calls_itself_by_a_plain_word_is_not_named_where_that_stands(hostname: str):
    class SoCalled(Hosts):
        def all(self) -> list[HostIdentity]:
            return [replace(each, hostname=hostname) for each in super().all()]

    reader = Viewer("a", HostNames(lambda: SoCalled(["n7"])))

    assert reader.redact_text("no VM that is running ends: no room") == (
        "no VM that is running ends: no room"
    )
    assert reader.redact_text(f"n7 is down, {hostname}.dc.example") == (
        f"{reader.host('n7')} is down, " + reader.redact_text(f"{hostname}.dc.example")
    )
    assert "dc.example" not in reader.redact_text(f"{hostname}.dc.example is down")


@pytest.mark.parametrize(
    ("actor", "told"),
    [
        ("tenant:a", "tenant:a"),
        ("tenant:b", "fuga"),
        ("operator:alice", "operator"),
        ("cli", "operator"),
        ("worker-7.example.org:12", "fuga"),
        ("monitor", "fuga"),
    ],
)
def test_who_did_something(actor: str, told: str):
    names = HostNames(lambda: Hosts([]))

    assert Viewer("a", names).actor(actor) == told
    assert Viewer(None, names).actor(actor) == actor
