"""Two tenants' guests on one network: what each is given stays its own, whatever the other does.

The guests are real, and do what an attacker with root inside would. Each attack is first
carried out on cards without protection, where it works: so its failure means something.
"""

from __future__ import annotations

import json
import os
import re
import socket
import struct
import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from hypervisor import DomainSpec, Guard, HostConnection, OperationFailedError
from hypervisor.xml import network_filters
from tests.contract.conftest import DEADLINE_S, Ground
from tests.servers.lab_hosts import LabCluster
from tests.servers.running import eventually

pytestmark = [pytest.mark.qemu, pytest.mark.slow]

SUBNET = "10.78.0.0/24"
GATEWAY, VICTIM, ATTACKER = "10.78.0.1", "10.78.0.2", "10.78.0.3"
VICTIM_MAC, ATTACKER_MAC = "02:00:00:00:78:02", "02:00:00:00:78:03"
BOX = "/bin/busybox"


@dataclass
class Guest:
    """A guest that runs, and what is typed on its console."""

    spec: DomainSpec
    host: HostConnection

    def run(self, command: str) -> str:
        """Run a command of busybox's shell inside, and return what it wrote."""
        self.host.open_console(self.spec.mark.vm_id, force=True)
        typed, said = f"run {command}\r".encode(), b""

        def ended() -> bool:
            nonlocal typed, said
            came = self.host.exchange_console(typed, wait_s=0.2)
            typed = typed[came.taken :]
            said += came.content
            return re.search(rb"LAB-GUEST-RAN \d+\r", said) is not None

        eventually(ended, within_s=60, every_s=0.0)
        self.host.release_console()
        wrote = said.decode(errors="replace")
        assert "LAB-GUEST-RAN 0\r" in wrote, wrote
        return "\n".join(re.findall(r"LAB-GUEST-SAID (.*?)\r?\n", wrote))

    def reaches(self, address: str) -> bool:
        said = self.run(f"{BOX} ping -c 2 -W 1 {address}; {BOX} true")
        return " 0% packet loss" in said

    def listens(self) -> None:
        """Keep what is sent to port 9, whatever address it was sent to."""
        loop = f"while :; do {BOX} nc -l -p 9 </dev/null; done"
        self.run(f"({loop}) >/tmp/heard 2>/dev/null & {BOX} true")

    def heard(self) -> str:
        return self.run(f"{BOX} cat /tmp/heard")

    def takes(self, address: str, mac: str | None = None) -> None:
        """Take an address, and a MAC, that were given to another, and tell everybody."""
        if mac is not None:
            self.run(
                f"{BOX} ip link set eth0 down; {BOX} ip link set eth0 address {mac};"
                f" {BOX} ip link set eth0 up"
            )
        self.run(
            f"{BOX} ip address flush dev eth0; {BOX} ip address add {address}/24 dev eth0;"
            f" {BOX} arping -q -U -c 2 -I eth0 {address}; {BOX} true"
        )


@dataclass
class Site:
    """One host's bridge, with a gateway on it, and guests."""

    ground: Ground
    host: HostConnection
    lab: LabCluster

    def guest(self, mac: str, address: str, guard: Guard, *, kind: str = "network") -> Guest:
        source = "default" if kind == "network" else "br0"
        spec = replace(self.ground.spec(), mac=mac, network=source, network_kind=kind, guard=guard)
        self.ground.made.append(spec)
        self.ground.create_volume(spec)
        host, vm_id = self.host, spec.mark.vm_id
        host.define(spec)
        host.start_paused(vm_id, guard=guard)
        host.resume(vm_id)
        eventually(lambda: b"LAB-GUEST-READY" in host.console_tail(vm_id).content, within_s=180)
        guest = Guest(spec, host)
        guest.run(f"{BOX} ip address add {address}/24 dev eth0; {BOX} ip link set eth0 up")
        return guest

    def inside(self, *command: str) -> str:
        """Run a command in the host's own network, as its router would."""
        pid = (self.lab.directory / "hosts" / "1" / "pid").read_text().split()[0]
        done = subprocess.run(
            ["nsenter", "-t", pid, "-n", *command], capture_output=True, text=True, check=False
        )
        return done.stdout + done.stderr

    def inside_all(self, *command: str) -> None:
        """Run a command in the host's own view of files as well."""
        pid = (self.lab.directory / "hosts" / "1" / "pid").read_text().split()[0]
        subprocess.run(["nsenter", "-t", pid, "-n", "-m", "-p", *command], check=True)

    def virsh(self, *command: str) -> str:
        done = subprocess.run(
            ["virsh", "-q", "-c", self.host.uri, *command],
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout

    def sends(self, text: str, address: str) -> None:
        """Send something from the gateway; who has the address is found out again."""
        self.inside("ip", "neigh", "flush", "dev", "br0")
        code = (
            f"import socket; s = socket.create_connection(('{address}', 9), timeout=3);"
            f" s.sendall(b'{text}\\n'); s.close()"
        )
        self.inside("python3", "-c", code)


@pytest.fixture
def site(lab_cluster: Callable[[int], LabCluster]) -> Iterator[Site]:
    lab = lab_cluster(1)
    at = lab.hosts[0]
    with HostConnection(at.uri, deadline_s=DEADLINE_S) as host:
        ground = Ground("qemu", host, at.domain_type, at.pool, at.base_volume)
        site = Site(ground, host, lab)
        site.inside("ip", "address", "replace", f"{GATEWAY}/24", "dev", "br0")
        yield site
        site.inside("ip", "address", "flush", "dev", "br0")
        ground.empty()


def guards(*, filtered: bool, isolated: bool = False) -> tuple[Guard, Guard]:
    guard = Guard(filtered=filtered, isolated=isolated)
    return replace(guard, address=VICTIM), replace(guard, address=ATTACKER)


def attack(site: Site, *, filtered: bool, kind: str = "network", mac: bool = False) -> Guest:
    """Let one guest take what is the other's, which then goes off; something is sent to both."""
    of_victim, of_attacker = guards(filtered=filtered)
    victim = site.guest(VICTIM_MAC, VICTIM, of_victim, kind=kind)
    attacker = site.guest(ATTACKER_MAC, ATTACKER, of_attacker, kind=kind)
    assert victim.reaches(GATEWAY)
    assert victim.reaches(ATTACKER)
    assert attacker.reaches(GATEWAY)
    victim.listens()
    attacker.listens()

    attacker.takes(VICTIM, VICTIM_MAC if mac else None)

    site.sends("beside it", VICTIM)
    if filtered:
        assert "beside it" in victim.heard()
    site.host.power_off(victim.spec.mark.vm_id, run=site.ground.find(victim.spec).run or 0)
    site.sends("instead of it", VICTIM)
    return attacker


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", ["network", "bridge"])
def test_a_guest_that_takes_anothers_address_receives_nothing(site: Site, kind: str) -> None:
    attacker = attack(site, filtered=True, kind=kind)

    assert attacker.heard() == ""
    assert not attacker.reaches(GATEWAY)
    attacker.takes(ATTACKER)
    assert attacker.reaches(GATEWAY)  # what is its own still works


@pytest.mark.long
def test_a_guest_that_takes_anothers_address_and_mac_receives_nothing(site: Site) -> None:
    attacker = attack(site, filtered=True, mac=True)

    assert attacker.heard() == ""
    assert not attacker.reaches(GATEWAY)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("mac", [False, True])
def test_without_a_filter_the_attack_works(site: Site, mac: bool) -> None:
    attacker = attack(site, filtered=False, mac=mac)

    assert "instead of it" in attacker.heard()


def test_isolated_guests_reach_their_gateway_and_not_each_other(site: Site) -> None:
    of_one, of_other = guards(filtered=True, isolated=True)
    one = site.guest(VICTIM_MAC, VICTIM, of_one)
    other = site.guest(ATTACKER_MAC, ATTACKER, of_other)

    assert one.reaches(GATEWAY)
    assert other.reaches(GATEWAY)
    assert not one.reaches(ATTACKER)
    assert not other.reaches(VICTIM)


HOST, OTHER_BRIDGE, OTHER_BROADCAST = "10.99.0.7", "192.0.2.1", "192.0.2.255"
LISTENERS = r"""
import os, socket, threading
def serve(kind, port):
    one = socket.socket(socket.AF_INET, kind)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    one.bind(("0.0.0.0", port))
    if kind == socket.SOCK_STREAM:
        one.listen()
    while True:
        if kind == socket.SOCK_STREAM:
            peer = one.accept()[0]
            peer.sendall(b"open"); peer.close()
            os.write(1, b"tcp %d\n" % port)
        else:
            one.recv(100)
            os.write(1, b"udp %d\n" % port)
for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
    for port in (22, 53, 123, 5900, 49152):
        threading.Thread(target=serve, args=(kind, port)).start()
print("ready", flush=True)
"""


@pytest.fixture
def listening(site: Site, tmp_path: Path) -> Iterator[Callable[[], set[str]]]:
    """Let a host listen on `*`; return what has reached it since the last call."""
    site.inside("ip", "address", "add", f"{HOST}/32", "dev", "lo")
    (tmp_path / "network.xml").write_text(
        "<network><name>routed</name><forward mode='open'/><bridge name='br9'/><dns enable='no'/>"
        f"<ip address='{OTHER_BRIDGE}' netmask='255.255.255.0'/></network>"
    )
    site.virsh("net-create", str(tmp_path / "network.xml"))
    pid = (site.lab.directory / "hosts" / "1" / "pid").read_text().split()[0]
    command = ["nsenter", "-t", pid, "-n", "python3", "-c", LISTENERS]
    with (
        (tmp_path / "arrivals").open("w") as output,
        (tmp_path / "arrivals").open() as arrivals,
        subprocess.Popen(command, stdout=output) as server,
    ):
        eventually(lambda: arrivals.readline() == "ready\n")
        yield lambda: set(arrivals.read().split("\n")) - {""}
        server.kill()
    site.virsh("net-destroy", "routed")
    site.inside("ip", "address", "delete", f"{HOST}/32", "dev", "lo")


def knock(guest: Guest, *addresses: str) -> None:
    """Send something to each of these ports of an address, by TCP and by UDP."""
    send = "".join(
        f"{BOX} nc -w 8 {address} {port} </dev/null >/dev/null 2>&1 &"
        f" {BOX} timeout 8 {BOX} tftp -g -l /tmp/none -r x {address} {port} >/dev/null 2>&1 & "
        for address in addresses
        for port in PORTS
    )
    guest.run(f"{send} wait; {BOX} true")


PORTS = (22, 53, 123, 5900, 49152)
SERVICES = {"tcp 53", "tcp 123", "udp 53", "udp 123"}
ALL_PORTS = {f"{protocol} {port}" for protocol in ("tcp", "udp") for port in PORTS}
TO_HOSTS = Guard(filtered=True, isolated=False, address=VICTIM)
#: The address on another network of its libvirt a host finds by itself.
CLOSED = replace(TO_HOSTS, closed=(f"{GATEWAY}/32", "10.99.0.0/16"), services=(GATEWAY,))


def on_route(site: Site, guard: Guard) -> Guest:
    guest = site.guest(VICTIM_MAC, VICTIM, guard)
    guest.run(f"{BOX} ip route add default via {GATEWAY}")
    return guest


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", ["fixed", "apart"])
def test_a_guest_reaches_services_of_its_gateway_and_no_other_port_of_a_host(
    site: Site, listening: Callable[[], set[str]], kind: str
) -> None:
    guard = apart(CLOSED) if kind == "apart" else CLOSED
    guest = on_route(site, guard)

    knock(guest, GATEWAY)

    assert guest.reaches(GATEWAY)
    assert listening() == SERVICES
    knock(guest, HOST, OTHER_BRIDGE, OTHER_BROADCAST)
    assert listening() == set()
    assert not guest.reaches(HOST)


@pytest.mark.long
def test_where_no_addresses_of_hosts_are_closed_a_guest_reaches_all_ports(
    site: Site, listening: Callable[[], set[str]]
) -> None:
    guest = on_route(site, TO_HOSTS)

    for address in (GATEWAY, HOST):
        knock(guest, address)
        assert listening() == ALL_PORTS


def apart(guard: Guard) -> Guard:
    """A card that reaches the gateway of its subnet alone."""
    return replace(guard, isolated=True, subnet=SUBNET, reaches=(f"{GATEWAY}/32",))


WIRE_MAC, OTHER_MAC = "02:00:00:00:78:99", "02:f6:00:00:78:99"
ALL, ROUTER_MAC, BEYOND = "ff:ff:ff:ff:ff:ff", "52:54:00:00:78:01", "172.17.0.2"


def frame(to: str, source: str, kind: int, content: bytes) -> bytes:
    macs = bytes.fromhex((to + source).replace(":", ""))
    return (macs + kind.to_bytes(2, "big") + content).ljust(60, b"\0")


def udp(source: str, to: str, port: int = 9) -> bytes:
    """An IP packet whose header's checksum is right: bridges drop others."""
    addresses = socket.inet_aton(source) + socket.inet_aton(to)
    head = bytes.fromhex("4500001c0000000040110000") + addresses
    total = sum(struct.unpack("!10H", head))
    checksum = 0xFFFF - (total % 0xFFFF)
    ports = (9).to_bytes(2, "big") + port.to_bytes(2, "big") + bytes.fromhex("00080000")
    return head[:10] + checksum.to_bytes(2, "big") + addresses + ports


def arp(source: str, to: str, *, operation: int = 1) -> bytes:
    head = bytes.fromhex("000108000604") + operation.to_bytes(2, "big")
    own = bytes.fromhex(WIRE_MAC.replace(":", "")) + socket.inet_aton(source)
    return head + own + bytes(6) + socket.inet_aton(to)


#: What a guest of another host sends to the victim, by what it is. Its host lets it say its own
#: address alone.
MEETINGS = {
    "limited broadcast": frame(ALL, WIRE_MAC, 0x800, udp(ATTACKER, "255.255.255.255")),
    "broadcast of the subnet": frame(ALL, WIRE_MAC, 0x800, udp(ATTACKER, "10.78.0.255")),
    "multicast": frame("01:00:5e:00:00:01", WIRE_MAC, 0x800, udp(ATTACKER, "224.0.0.1")),
    "a packet in a frame to all": frame(ALL, WIRE_MAC, 0x800, udp(ATTACKER, VICTIM)),
    "ARP": frame(ALL, WIRE_MAC, 0x806, arp(ATTACKER, VICTIM)),
    "ARP beyond the subnet": frame(ALL, WIRE_MAC, 0x806, arp(ATTACKER, BEYOND)),
    "an answer to ARP": frame(VICTIM_MAC, WIRE_MAC, 0x806, arp(ATTACKER, VICTIM, operation=2)),
    "another address of the victim": frame(VICTIM_MAC, WIRE_MAC, 0x800, udp(ATTACKER, BEYOND)),
    "the victim's address": frame(VICTIM_MAC, WIRE_MAC, 0x800, udp(ATTACKER, VICTIM)),
    "a guest of another subnet": frame(VICTIM_MAC, OTHER_MAC, 0x800, udp("10.79.0.3", VICTIM)),
}
NEVER = {
    "IPv6 to all": frame("33:33:00:00:00:01", WIRE_MAC, 0x86DD, bytes.fromhex("60000000")),
    "IPv6 to the victim": frame(VICTIM_MAC, WIRE_MAC, 0x86DD, bytes.fromhex("60000000")),
    "a VLAN's tag": frame(
        VICTIM_MAC, WIRE_MAC, 0x8100, bytes.fromhex("00050800") + udp(GATEWAY, VICTIM)
    ),
    "two tags": frame(VICTIM_MAC, WIRE_MAC, 0x88A8, bytes.fromhex("0005810000060800")),
    "an unknown protocol": frame(VICTIM_MAC, WIRE_MAC, 0x88B5, b"hello"),
    "a length": frame(VICTIM_MAC, WIRE_MAC, 0x0026, b"hello"),
}
ROUTED = {
    "ARP of the gateway": frame(ALL, ROUTER_MAC, 0x806, arp(GATEWAY, VICTIM)),
    "an answer of the gateway": frame(
        VICTIM_MAC, ROUTER_MAC, 0x806, arp(GATEWAY, VICTIM, operation=2)
    ),
    "the gateway at another MAC": frame(ALL, ROUTER_MAC, 0x806, arp(GATEWAY, GATEWAY)),
    "a packet of the gateway": frame(VICTIM_MAC, ROUTER_MAC, 0x800, udp(GATEWAY, VICTIM)),
    "a packet from beyond it": frame(VICTIM_MAC, ROUTER_MAC, 0x800, udp("192.0.2.7", VICTIM)),
}


@pytest.fixture
def wire(site: Site) -> Iterator[Site]:
    """A port of the bridge that leads to another host."""
    site.inside("ip", "link", "add", "wire0", "type", "veth", "peer", "name", "wire1")
    site.inside("ip", "link", "set", "wire0", "master", "br0", "up")
    site.inside("ip", "link", "set", "wire1", "up")
    yield site
    site.inside("ip", "link", "delete", "wire0")


def arrivals(site: Site, guest: Guest, frames: dict[str, bytes]) -> list[str]:
    """Return which of these frames, sent from another host, reach a guest's card."""
    card = site.virsh("domiflist", guest.spec.name).split()[0]
    found = []
    for name, content in frames.items():
        code = (
            "import socket; s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW);"
            f" s.bind(('wire1', 0)); [s.send(bytes.fromhex('{content.hex()}')) for _ in range(3)]"
        )
        before = sent_to(site, card)
        site.inside("python3", "-c", code)
        if sent_to(site, card) >= before + 3:
            found.append(name)
    return found


def sent_to(site: Site, card: str) -> int:
    [link] = json.loads(site.inside("ip", "-s", "-j", "link", "show", card))
    return int(link["stats64"]["tx"]["packets"])


@pytest.mark.long
def test_what_guests_of_other_hosts_send_does_not_reach_an_isolated_guest(wire: Site) -> None:
    fixed, _ = guards(filtered=True)
    everything = {**MEETINGS, **NEVER, **ROUTED}
    heard = []
    for guard in (fixed, apart(fixed), replace(fixed, isolated=True)):
        heard.append(arrivals(wire, wire.guest(VICTIM_MAC, VICTIM, guard), everything))
        wire.ground.empty()
        wire.ground.made.clear()

    assert heard[0] == [*MEETINGS, *ROUTED]
    assert heard[1] == [*ROUTED]
    assert heard[2] == [*(each for each in MEETINGS if "another subnet" not in each), *ROUTED]


def leaves(site: Site, guest: Guest, command: str) -> bool:
    """Return whether something of a guest reaches another host."""
    code = (
        "import socket, time; s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW,"
        " socket.htons(3)); s.bind(('wire1', 0)); s.settimeout(0.1); print('ready', flush=True)\n"
        "import sys, threading; over = threading.Event()\n"
        "threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()\n"
        "while not over.is_set():\n"
        "    try: print(s.recv(2048).hex(), flush=True)\n"
        "    except TimeoutError: pass\n"
    )
    pid = (site.lab.directory / "hosts" / "1" / "pid").read_text().split()[0]
    with subprocess.Popen(
        ["nsenter", "-t", pid, "-n", "python3", "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as sniffer:
        assert sniffer.stdout is not None
        assert sniffer.stdout.readline() == "ready\n"
        guest.run(f"{command}; {BOX} true")
        seen, _ = sniffer.communicate("")
    own = (guest.spec.mac or "").replace(":", "")
    return any(line[12:24] == own for line in seen.splitlines())


def via(mac: str, address: str = BEYOND) -> str:
    """Send to an address in frames to this MAC."""
    return (
        f"{BOX} ip route replace {address}/32 dev eth0;"
        f" {BOX} ip neigh replace {address} lladdr {mac} dev eth0 nud permanent;"
        f" {BOX} ping -c 2 -W 1 {address}"
    )


SENDINGS = {
    "limited broadcast": f"{BOX} ping -c 2 -W 1 -I eth0 255.255.255.255",
    "multicast": f"{BOX} ping -c 2 -W 1 -I eth0 224.0.0.1",
    "a packet in a frame to all": via("ff:ff:ff:ff:ff:ff"),
    "ARP": f"{BOX} arping -c 2 -w 2 -I eth0 10.78.0.77",
    "ARP beyond the subnet": f"{BOX} arping -c 2 -w 2 -I eth0 172.17.0.77",
    "another address of an isolated guest": via(OTHER_MAC),
}


@pytest.mark.long
def test_an_isolated_guest_sends_nothing_that_guests_of_other_hosts_hear(wire: Site) -> None:
    fixed, other = guards(filtered=True)
    free = wire.guest(ATTACKER_MAC, ATTACKER, other)
    guest = wire.guest(VICTIM_MAC, VICTIM, apart(fixed))
    third = Guard(filtered=True, isolated=True, address="10.78.0.4")
    of_unknown_subnet = wire.guest("02:00:00:00:78:04", "10.78.0.4", third)

    assert [name for name, does in SENDINGS.items() if leaves(wire, free, does)] == [*SENDINGS]
    assert [name for name, does in SENDINGS.items() if leaves(wire, guest, does)] == []
    groups = ("limited broadcast", "multicast")
    assert [each for each in groups if leaves(wire, of_unknown_subnet, SENDINGS[each])] == []
    assert guest.reaches(GATEWAY)


@pytest.mark.long
def test_isolated_guests_do_not_reach_those_on_other_hosts_either(site: Site) -> None:
    """A card that is not isolated stands for one that is beyond this bridge."""
    of_one, of_other = guards(filtered=True)
    one = site.guest(VICTIM_MAC, VICTIM, apart(of_one))
    other = site.guest(ATTACKER_MAC, ATTACKER, of_other)

    assert one.reaches(GATEWAY)
    assert not one.reaches(ATTACKER)
    assert other.reaches(GATEWAY)


@pytest.mark.long
@pytest.mark.parametrize("subnet_known", [False, True])
def test_isolated_guests_do_not_meet_by_way_of_their_router(site: Site, subnet_known: bool) -> None:
    cards_of = guards(filtered=True, isolated=True)
    of_one, of_other = map(apart, cards_of) if subnet_known else cards_of
    one = site.guest(VICTIM_MAC, VICTIM, of_one)
    other = site.guest(ATTACKER_MAC, ATTACKER, of_other)
    for guest, address in ((one, ATTACKER), (other, VICTIM)):
        guest.run(f"{BOX} ip route add {address}/32 via {GATEWAY}")
    site.inside("sysctl", "-w", "net.ipv4.ip_forward=1", "net.ipv4.conf.br0.send_redirects=0")

    assert one.reaches(ATTACKER) == (not subnet_known)
    assert one.reaches(GATEWAY)


@pytest.mark.long
def test_a_guest_that_asks_by_dhcp_has_what_it_was_given_and_nothing_else(
    site: Site, tmp_path: Path
) -> None:
    leases, script = tmp_path / "leases", "/tmp/bound"
    leases.touch()
    (tmp_path / "udhcpd.conf").write_text(
        f"start 10.78.0.50\nend 10.78.0.60\ninterface br0\nlease_file {leases}\n"
        f"pidfile {tmp_path / 'pid'}\noption subnet 255.255.255.0\n"
    )
    pid = (site.lab.directory / "hosts" / "1" / "pid").read_text().split()[0]
    server = subprocess.Popen(
        ["nsenter", "-t", pid, "-n", "busybox", "udhcpd", "-f", str(tmp_path / "udhcpd.conf")]
    )
    try:
        guest = site.guest(VICTIM_MAC, VICTIM, Guard(filtered=True, isolated=False))
        assert not guest.reaches(GATEWAY)  # its root gave itself an address
        guest.run(
            f"{BOX} ip address flush dev eth0; echo '#!{BOX} sh' >{script};"
            f""" echo '[ "$1" = bound ] && {BOX} ip address add $ip/24 dev eth0' >>{script};"""
            f" {BOX} chmod 755 {script}"
        )
        guest.run(f"{BOX} udhcpc -i eth0 -n -q -t 10 -T 2 -s {script}")
        assert "10.78.0." in guest.run(f"{BOX} ip -4 address show dev eth0")
        eventually(lambda: guest.reaches(GATEWAY))  # as soon as the host has read the lease

        guest.takes(VICTIM)

        assert not guest.reaches(GATEWAY)
    finally:
        server.kill()
        server.wait()


@pytest.mark.long
def test_no_ipv6_passes_between_guests(site: Site) -> None:
    ask = f"{BOX} ping -6 -c 3 -W 2 fe80::ff:fe00:7803%eth0; {BOX} true"  # made of its MAC
    answers = {}
    for filtered in (False, True):
        of_one, of_other = guards(filtered=filtered)
        one = site.guest(VICTIM_MAC, VICTIM, of_one)
        site.guest(ATTACKER_MAC, ATTACKER, of_other)
        answers[filtered] = one.run(ask)
        site.ground.empty()
        site.ground.made.clear()

    assert "64 bytes from" in answers[False]
    assert "100% packet loss" in answers[True]


def test_a_domain_from_before_filters_has_its_own_when_it_is_started(site: Site) -> None:
    of_old, _ = guards(filtered=True)
    old = replace(site.ground.spec(), mac=VICTIM_MAC, network="default", guard=None)
    site.ground.made.append(old)
    vm_id = old.mark.vm_id
    site.ground.define(old)
    assert site.ground.find(old).filtered is False

    site.host.start_paused(vm_id, guard=of_old)

    assert site.ground.find(old).filtered is True
    assert network_filters.FIXED.name in site.virsh("dumpxml", vm_id)
    rules = site.inside("ebtables", "-t", "nat", "-L")
    assert f"--arp-ip-src {VICTIM}" in rules


@pytest.mark.long
def test_filters_that_somebody_edited_or_removed_are_made_anew(site: Site, tmp_path: Path) -> None:
    of_one, of_other = guards(filtered=True)
    site.guest(VICTIM_MAC, VICTIM, of_one)
    open_to_all = re.sub(r"<rule .*</rule>", "", network_filters.FIXED.xml)
    (tmp_path / "edited.xml").write_text(open_to_all)
    site.virsh("nwfilter-define", str(tmp_path / "edited.xml"))
    assert "arpsrcipaddr" not in site.virsh("nwfilter-dumpxml", network_filters.FIXED.name)

    site.guest(ATTACKER_MAC, ATTACKER, of_other)

    found = ET.fromstring(site.virsh("nwfilter-dumpxml", network_filters.FIXED.name))
    assert network_filters.same_rules(found, ET.fromstring(network_filters.FIXED.xml))


def test_what_libvirt_cannot_filter_is_refused_before_a_guest_is_there(
    site: Site, tmp_path: Path
) -> None:
    (tmp_path / "net.xml").write_text(
        "<network><name>macvtap</name><forward mode='bridge'><interface dev='eth0'/></forward>"
        "</network>"
    )
    site.virsh("net-create", str(tmp_path / "net.xml"))
    of_one, _ = guards(filtered=True)
    spec = replace(site.ground.spec(), network="macvtap", guard=of_one)
    site.ground.made.append(spec)
    site.ground.create_volume(spec)

    with pytest.raises(OperationFailedError, match="filters nothing on network macvtap"):
        site.host.define(spec)

    site.virsh("net-destroy", "macvtap")
    assert site.host.find(spec.mark.vm_id) is None


def test_where_the_tables_of_bridges_are_missing_no_guest_starts(site: Site) -> None:
    """A host without ebtables: libvirt says so, and nothing runs unfiltered."""
    of_one, _ = guards(filtered=True)
    spec = replace(site.ground.spec(), mac=VICTIM_MAC, network="default", guard=of_one)
    site.ground.made.append(spec)
    site.ground.define(spec)
    site.inside_all("mount", "--bind", "/bin/false", os.path.realpath("/usr/sbin/ebtables"))
    try:
        with pytest.raises(OperationFailedError):
            site.host.start_paused(spec.mark.vm_id, guard=of_one)
    finally:
        site.inside_all("umount", os.path.realpath("/usr/sbin/ebtables"))
    assert site.ground.find(spec).run is None
