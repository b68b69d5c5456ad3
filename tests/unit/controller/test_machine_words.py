"""What libvirt, SSH and TLS say of a failure, as a tenant reads it.

The messages are those of libvirt 9, OpenSSH 9 and GnuTLS, with other names.
"""

from __future__ import annotations

import pytest

from controller.host_aliases import MAX_TEXT, HostNames, Viewer
from registry.hosts import HostIdentity


class Site:
    """A register center with one host, kvm-07."""

    def secret(self) -> bytes:
        return b"secret"

    def change_mark(self) -> int:
        return 1

    def all(self) -> list[HostIdentity]:
        uri = "qemu+tls://kvm-07.rack3.lan:16514/system"
        return [HostIdentity(name="kvm-07", uri=uri, hostname="node-7", retired=False)]


NAMES = HostNames(Site)
ALIAS = NAMES.alias("a", "kvm-07")
SECRETS = (
    "kvm-07", "node-7", "rack3", "jump1", "10.9.8.7", "fd00::", "::1", "fe80", "/var", "/etc",
    "/run", "qemu+", "root", "fuga-operator", "storage01", "16514", "site-key", "ldap",
)  # fmt: skip


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            "qemu+tls://kvm-07.rack3.lan/system does not answer: unable to connect to server at"
            " 'kvm-07.rack3.lan:16514': Connection refused",
            f"its host does not answer: unable to connect to server at '{ALIAS}:16514':"
            " Connection refused",
        ),
        (
            "Cannot recv data: ssh: connect to host jump1 port 22: No route to host:"
            " Connection reset by peer",
            "Cannot recv data: ssh: connect to host (a machine) port 22: No route to host:"
            " Connection reset by peer",
        ),
        (
            "Cannot recv data: ssh: Could not resolve hostname jump1.rack3.lan: Name or service"
            " not known: Connection reset by peer",
            "Cannot recv data: ssh: Could not resolve hostname (a machine): Name or service"
            " not known: Connection reset by peer",
        ),
        (
            "Cannot recv data: root@10.9.8.7: Permission denied (publickey,password).",
            "Cannot recv data: (an address): Permission denied (publickey,password).",
        ),
        (
            "Cannot recv data: fuga-operator@node-7: Permission denied (publickey)",
            f"Cannot recv data: {ALIAS}: Permission denied (publickey)",
        ),
        (
            "Cannot recv data: No ED25519 host key is known for [10.9.8.7]:2222 and you have"
            " requested strict checking.\nHost key verification failed.",
            "Cannot recv data: No ED25519 host key is known for [(an address)]:2222 and you have"
            " requested strict checking.\nHost key verification failed.",
        ),
        ("Connection closed by fd00::17 port 22", "Connection closed by (an address) port 22"),
        ("connect to fe80::1%eth0: timed out", "connect to (an address): timed out"),
        (
            "Cannot read CA certificate '/etc/pki/CA/cacert.pem': No such file or directory",
            "Cannot read CA certificate '(a path)': No such file or directory",
        ),
        (
            "Certificate [session] owner does not match the hostname kvm-07.rack3.lan",
            f"Certificate [session] owner does not match the hostname {ALIAS}",
        ),
        (
            "Failed to connect socket to '/var/run/libvirt/libvirt-sock': Connection refused",
            "Failed to connect socket to '(a path)': Connection refused",
        ),
        (
            "cannot open volume: storage01.rack3.lan: Stale file handle",
            "cannot open volume: (a machine): Stale file handle",
        ),
        (
            "internal error: process exited while connecting to monitor: qemu-system-x86_64:"
            " -drive file=/var/lib/libvirt/images/web.qcow2: Could not open"
            " 'storage01:3260': 12:30:05",
            "internal error: process exited while connecting to monitor: qemu-system-x86_64:"
            " -drive file=(a path): Could not open '(a machine)': 12:30:05",
        ),
        ("kvm-07: credential site-key: no such key", f"{ALIAS}: its credential: no such key"),
        (
            "disk vdc of domain web is /var/lib/libvirt/images/x.snap, and not a volume that fuga"
            " made: if that is a snapshot's, merge it with `virsh blockcommit web vdc --pivot`",
            "disk vdc of domain web is (a path), and not a volume that fuga made: ask an operator",
        ),
        ("its pool hangs, `virsh pool-destroy` it", "its pool hangs: ask an operator"),
        ("`qemu-img check` it", "ask an operator"),
    ],
)
def test_a_tenant_reads_what_failed_and_not_where(said: str, told: str) -> None:
    read = Viewer("a", NAMES).redact_text(said)

    assert read == told
    assert [word for word in SECRETS if word in read.replace(f"{ALIAS}:16514", "")] == []
    assert Viewer(None, NAMES).redact_text(said) == said


@pytest.mark.parametrize(
    "said",
    [
        "the image lab:12 is not ready",
        "its build was given up after 600 s",
        "debian-12.qcow2 has no backing file",
        "the guest did not shut down within 90 s: it was forced at 12:30:05",
        "the host is down; connect to it failed",
        "operation failed: domain web-1 is not running",
        "no worker answered within 20 s",
    ],
)
def test_what_says_nothing_of_a_machine_stays(said: str) -> None:
    assert Viewer("a", NAMES).redact_text(said) == said


def test_of_a_long_text_the_beginning_is_told_and_no_more_is_looked_through() -> None:
    for evil in ("a.", "a:", "/a", "hostname ", "a@", "::", "1."):
        shown = Viewer("a", NAMES).redact_text("it failed: " + evil * 50_000)

        assert shown.startswith("it failed: ")
        assert len(shown) < 2 * MAX_TEXT
