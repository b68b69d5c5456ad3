"""`fuga host check`: what is found of a host before it is registered."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from controller.cli.doctor.check_result import CheckResult
from controller.cli.site import host_check, host_reach
from controller.cli.site.host_findings import host_findings
from controller.cli.site.host_reach import reach_findings
from tests.fakes.http_api import HttpApi
from tests.servers.certificates import Authority, Pair
from tests.servers.ports import a_quiet_port
from tests.unit.controller.cli.api_documents import Fuga, a_host

GIB = 1 << 30
UUID = "a911de1c-7c2d-4c1a-b0d7-0c57fb263ab9"
TARGET = {"name": "h9", "uri": "qemu+tls://h9/system", "domain_type": "kvm"}
HOST: dict[str, Any] = {
    "hostname": "h9",
    "driver": "QEMU",
    "machine_uuid": UUID,
    "libvirt_version": 9_000_000,
    "qemu_version": 7_002_022,
    "domain_types": ["kvm", "qemu"],
    "processor": "<cpu/>",
    "processor_model": "EPYC",
    "security_model": "apparmor",
    "can_filter": True,
    "network_fault": None,
    "network_starts_by_itself": True,
}
POOL: dict[str, Any] = {
    "kind": "dir",
    "active": True,
    "starts_by_itself": True,
    "capacity_bytes": 100 * GIB,
    "free_bytes": 60 * GIB,
    "clock_ahead_s": 0.0,
}
ALIKE = {"baseline": "EPYC", "faults": {}, "others": ["h1"]}


def found(seen: dict[str, Any], *registered: dict[str, Any], **target: Any) -> list[CheckResult]:
    return list(host_findings(TARGET | target, seen, registered))


def seen_with(*, pool: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    of_host = {key: value for key, value in changes.items() if key in HOST}
    rest = {key: value for key, value in changes.items() if key not in HOST}
    return {"host": HOST | of_host, "pool": POOL | (pool or {}), **rest}


def test_a_host_that_lacks_nothing_is_well_and_each_check_says_what_it_saw() -> None:
    everything = found(seen_with(processors=ALIKE))

    assert {each.level for each in everything} == {"ok"}
    assert {each.about: each.message for each in everything} == {
        "libvirt": "9.0.0",
        "QEMU": "7.2.22",
        "KVM": "available",
        "CPU model": "EPYC; takes running VMs of h1; baseline EPYC",
        "confinement": "guests are confined by apparmor",
        "filters": "libvirt has network filters",
        "pool default": "dir, 60 of 100 GiB free",
        "clock": "within 5 s of this machine's",
        "network default": "active",
        "machine": f"{UUID}, h9",
    }


@pytest.mark.parametrize(
    ("seen", "level", "about", "words"),
    [
        ({"credential_fault": "credential a: id is missing"}, "WRONG", "credential", "missing"),
        ({"unreachable": "no answer within 20 s"}, "WRONG", "libvirt", "within 20 s"),
        ({"host_fault": "no such call"}, "WRONG", "libvirt", "no such call"),
        (seen_with(driver="TEST"), "WRONG", "libvirt", "it runs no VMs"),
        (seen_with(libvirt_version=8_002_001), "note", "libvirt", "8.2.1 is older than 9.0.0"),
        (seen_with(qemu_version=6_002_000), "note", "QEMU", "6.2.0 is older than 7.2.0"),
        (seen_with(domain_types=["qemu"]), "WRONG", "KVM", "load kvm_intel or kvm_amd"),
        (seen_with(domain_types=[]), "WRONG", "KVM", "only: none"),
        (
            seen_with(processors={**ALIKE, "faults": {"h1": "lacks avx2"}}),
            "note",
            "CPU model",
            "VMs of h1 cannot move here while they run (lacks avx2)",
        ),
        (seen_with(processors_fault="lost"), "note", "CPU model", "not compared: lost"),
        (seen_with(others_unread={"h7": "off"}), "note", "CPU model", "with h7: off"),
        (seen_with(security_model="none"), "WRONG", "confinement", "nothing confines its guests"),
        (seen_with(can_filter=False), "WRONG", "filters", "nwfilter"),
        (seen_with(pool={"active": False}), "WRONG", "pool default", "virsh pool-start default"),
        (
            seen_with(pool={"starts_by_itself": False}),
            "WRONG",
            "pool default",
            "virsh pool-autostart default",
        ),
        (seen_with(pool={"free_bytes": 9 * GIB}), "note", "pool default", "nearly full"),
        ({"host": HOST, "pool_fault": "no answer"}, "WRONG", "pool default", "no answer"),
        ({"host": HOST, "pool_fault": "no answer"}, "note", "clock", "timedatectl"),
        (seen_with(pool={"clock_ahead_s": None}), "note", "clock", "not visible from here"),
        (seen_with(pool={"clock_ahead_s": 3600.2}), "WRONG", "clock", "3600 s ahead of"),
        (seen_with(pool={"clock_ahead_s": -61.0}), "WRONG", "clock", "61 s behind"),
        (seen_with(network_fault="missing"), "WRONG", "network default", "virsh net-define"),
        (seen_with(network_fault="inactive"), "WRONG", "network default", "virsh net-start"),
        (seen_with(network_fault="unsupported"), "note", "network default", "no networks"),
        (seen_with(network_fault="its mode is vepa"), "WRONG", "network default", "not filtered"),
        (
            seen_with(network_starts_by_itself=False),
            "WRONG",
            "network default",
            "virsh net-autostart default",
        ),
        (seen_with(machine_uuid=None), "note", "machine", "reports no UUID"),
    ],
)
def test_what_a_host_lacks_is_said_with_what_to_do(
    seen: dict[str, Any], level: str, about: str, words: str
) -> None:
    said = [each for each in found(seen) if each.about == about and words in each.message]

    assert [each.level for each in said] == [level]


@pytest.mark.parametrize(
    ("other", "well", "words"),
    [
        ({"name": "h1", "machine_uuid": UUID}, False, "is registered as host h1"),
        ({"name": "h1", "machine_uuid": UUID, "admin": "retired"}, True, UUID),
        ({"name": "h1", "machine_uuid": None}, True, UUID),
        ({"name": "h9", "machine_uuid": UUID}, True, UUID),  # it is registered already
        ({"name": "h9", "machine_uuid": "b"}, False, "the host's own is b"),
    ],
)
def test_a_machine_is_registered_under_one_name(
    other: dict[str, Any], well: bool, words: str
) -> None:
    [said] = [each for each in found(seen_with(), a_host(**other)) if each.about == "machine"]

    assert (said.well, words in said.message) == (well, True)


def test_emulated_guests_need_neither_kvm_nor_confinement() -> None:
    seen = seen_with(domain_types=["qemu"], security_model="none")

    notes = {each.about: each.level for each in found(seen, domain_type="qemu")}

    assert (notes["KVM"], notes["confinement"]) == ("note", "note")


def test_plain_tcp_is_wrong_beyond_this_machine() -> None:
    [said] = [each for each in found(seen_with(), uri="qemu+tcp://h9/system") if not each.well]

    assert "root on the host" in said.message


@contextmanager
def listening(pair: Pair | None) -> Iterator[int]:
    """A port that answers TLS with this certificate, or that hangs."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if pair is not None:
        context.load_cert_chain(pair.certificate, pair.key)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                try:
                    with connection, context.wrap_socket(connection, server_side=True):
                        pass
                except OSError:
                    continue

        if pair is not None:
            threading.Thread(target=answer, daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.make(tmp_path_factory.mktemp("authorities") / "site")


@pytest.fixture
def credential(authority: Authority, tmp_path: Path) -> Path:
    client = authority.client("fuga")
    for name, source in (
        ("cacert.pem", authority.certificate),
        ("clientcert.pem", client.certificate),
        ("clientkey.pem", client.key),
    ):
        (tmp_path / name).write_bytes(source.read_bytes())
        (tmp_path / name).chmod(0o600)
    return tmp_path


@pytest.mark.parametrize(
    ("shown", "name", "words"),
    [
        ("server", "127.0.0.1", "sign a new one before"),  # the test's last 30 days
        ("server", "localhost", "the host's is refused: Hostname mismatch"),
        ("foreign", "127.0.0.1", "unable to get local issuer certificate"),
        ("nothing", "127.0.0.1", "no TLS with 127.0.0.1"),
        ("no credential", "127.0.0.1", "the files of the credential cannot be used"),
    ],
)
def test_the_certificate_of_a_host_is_judged_by_authority_name_and_age(
    authority: Authority,
    credential: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    shown: str,
    name: str,
    words: str,
) -> None:
    monkeypatch.setattr(host_reach, "_CONNECT_S", 1.0)
    foreign = Authority.make(tmp_path_factory.mktemp("foreign") / "other")
    pair = {"server": authority, "foreign": foreign}.get(shown)
    if shown == "no credential":
        credential = credential / "nowhere"

    with listening(pair and pair.server()) as port:
        found = host_reach.certificate_finding(name, port, credential)

    assert (found.well, words in found.message) == (False, True), found.message


@pytest.mark.parametrize(
    ("common_name", "names", "level", "words"),
    [
        ("server", "DNS:localhost", "ok", "the host's names it"),
        ("localhost", "", "note", "in its common name alone"),
        ("localhost", "email:a@b.example", "note", "in its common name alone"),
        ("localhost", "IP:127.0.0.1", "WRONG", "refused"),  # so GnuTLS does
        ("localhost/CN=other", "", "WRONG", "refused"),
        ("other", "", "WRONG", "refused"),
    ],
)
def test_a_certificate_is_taken_by_the_names_that_libvirt_takes(
    authority: Authority, credential: Path, common_name: str, names: str, level: str, words: str
) -> None:
    lasting = replace(authority, days=90)

    with listening(lasting.server("named", common_name, names)) as port:
        found = host_reach.certificate_finding("localhost", port, credential)

    assert (found.level, words in found.message) == (level, True), found.message


@pytest.mark.parametrize(
    ("own", "names", "noted"),
    [
        ("localhost", "DNS:localhost", False),  # the name in the URI
        ("kvm-07", "DNS:localhost,DNS:kvm-07", False),
        ("kvm-07", "DNS:localhost", True),
        ("kvm-07", "DNS:other", False),  # another finding refuses it
    ],
)
def test_a_certificate_without_the_hosts_own_name_is_noted_for_moves(
    authority: Authority, credential: Path, own: str, names: str, noted: bool
) -> None:
    lasting = replace(authority, days=90)
    with listening(lasting.server("named", names=names)) as port:
        found = host_reach.own_name_finding(f"qemu+tls://localhost:{port}/system", credential, own)

    assert (found is not None) is noted
    if found is not None:
        assert (found.level, "calls itself kvm-07" in found.message) == ("note", True)


def test_a_port_that_nothing_listens_at_is_said_before_libvirt_is_asked() -> None:
    uri = f"qemu+tls://127.0.0.1:{a_quiet_port()}/system"

    [found] = reach_findings(uri, None)

    assert (found.about, found.well) == ("port", False)
    assert "refused" in found.message


def test_plain_ports_that_are_open_as_well_are_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_reach, "addresses_of", lambda uris, _: {uris[0]: ("192.0.2.1",)})
    monkeypatch.setattr(
        host_reach, "_connection_fault", lambda _, port: None if port != 49152 else "lost"
    )

    found = {each.about: each for each in reach_findings("qemu+ssh://root@h9/system", None)}

    assert (found["plain port"].level, found["ports of moves"].level) == ("WRONG", "note")
    assert "root on the host" in found["plain port"].message


def test_a_host_that_accepts_and_hangs_ends_at_the_deadline_with_a_clear_line(
    api: HttpApi, fuga: Fuga, credential: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FUGA_HOST_CREDENTIALS", str(credential.parent))
    monkeypatch.setattr(host_reach, "_CONNECT_S", 0.5)
    credential.chmod(0o700)
    credential.parent.chmod(0o700)
    api.on("GET", "/v1/hosts", {"items": [], "next": None})

    with listening(None) as port:
        uri = f"qemu+tls://127.0.0.1:{port}/system"
        ended = fuga(
            "host", "check", uri, "--credential", credential.name, "--timeout", "1", "-o", "json"
        )

    said = {each["about"]: each["message"] for each in ended.json["findings"]}
    assert (ended.status, ended.json["well"]) == (1, False)
    assert "no TLS" in said["certificate"]
    assert "no answer within" in said["libvirt"]


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["qemu+tcp://192.0.2.99/system"], 1, "scheme 'qemu+tcp' is not allowed"),
        (["h7"], 2, "h7 is neither a URI nor the name of a registered host"),
        (["h7", "--file", "{file}"], 2, "of a host in"),
        (["qemu+tls://h/system", "--file", "{file}"], 2, "--file needs the NAME"),
        (["h1", "--file", "{file}"], 1, "refused"),
    ],
)
def test_what_is_to_be_checked_is_a_uri_or_a_name(
    api: HttpApi, fuga: Fuga, tmp_path: Path, words: list[str], status: int, said: str
) -> None:
    file = tmp_path / "hosts.toml"
    uri = f"qemu+tls://127.0.0.1:{a_quiet_port()}/system"
    file.write_text(f'[[host]]\nname = "h1"\nuri = "{uri}"\ncredential = "site"\n')
    api.on("GET", "/v1/hosts", {"items": [a_host(name="h2")], "next": None})

    ended = fuga("host", "check", *(word.format(file=file) for word in words))

    assert (ended.status, said in ended.out + ended.err) == (status, True), ended


def test_without_an_api_a_host_is_checked_and_not_compared(fuga: Fuga) -> None:
    ended = fuga("host", "check", "qemu+tls://127.0.0.1:1/system", "-o", "json")

    said = {each["about"]: each for each in ended.json["findings"]}
    assert (ended.status, said["port"]["well"], said["registered hosts"]["note"]) == (
        1,
        False,
        True,
    )


@pytest.mark.parametrize(
    ("registered", "name"),
    [
        ({"admin": "active"}, "kvm-01"),
        ({"admin": "retired"}, "qemu+tls://h/system"),
        ({"uri": "qemu+tls://other/system"}, "qemu+tls://h/system"),
    ],
)
def test_the_uri_of_a_registered_host_is_no_second_name_of_it(
    registered: dict[str, Any], name: str
) -> None:
    host = a_host(name="kvm-01", **{"uri": "qemu+tls://h/system", "admin": "active", **registered})

    assert host_check._find_target_host("qemu+tls://h/system", None, [host], None)["name"] == name
