"""What libvirt is told of a host: built from its fields, whatever stands in them."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypervisor import Credential
from hypervisor.credential import known_hosts, ssh_uri, tls_uri
from registry import UriRefusedError
from registry.hosts import check_uri

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA"
#: Folders as operators, and those who wish them ill, may call them.
FOLDERS = st.text(
    st.characters(blacklist_characters="\0", blacklist_categories=("Cs",)), min_size=1, max_size=40
).map(lambda text: f"/etc/{text}")
URIS = st.sampled_from(
    [
        "qemu+tls://kvm-1.example/system",
        "qemu+ssh://kvm-1.example/system",
        "qemu+ssh://root@10.0.0.7:2222/system",
        "qemu+libssh2://fuga@[fd00::7]:2222/system",
    ]
)


def test_a_tls_host_is_opened_with_the_files_of_its_credential() -> None:
    credential = Credential(name="site", folder="/etc/fuga/host-credentials/site")

    shown = tls_uri("qemu+tls://kvm-1.example:16515/system", credential)

    assert shown == (
        "qemu+tls://kvm-1.example:16515/system?pkipath=/etc/fuga/host-credentials/site"
    )


@pytest.mark.parametrize("scheme", ["qemu+ssh", "qemu+libssh", "qemu+libssh2"])
def test_ssh_is_always_spoken_by_libssh_which_checks_the_hosts_key(scheme: str) -> None:
    shown = ssh_uri(
        f"{scheme}://root@kvm-1/system", known_hosts="/proc/self/fd/7", key_file="/c/id"
    )

    assert shown == (
        "qemu+libssh://root@kvm-1/system?known_hosts=/proc/self/fd/7&known_hosts_verify=normal"
        "&sshauth=privkey&keyfile=/c/id"
    )


@given(URIS, FOLDERS)
def test_no_name_of_a_folder_adds_a_parameter_or_moves_the_host(uri: str, folder: str) -> None:
    told_tls = tls_uri(uri, Credential(name="site", folder=folder))
    told_ssh = ssh_uri(uri, known_hosts=folder, key_file=f"{folder}/id")

    for shown, expected in (
        (told_tls, [("pkipath", folder)]),
        (
            told_ssh,
            [
                ("known_hosts", folder),
                ("known_hosts_verify", "normal"),
                ("sshauth", "privkey"),
                ("keyfile", f"{folder}/id"),
            ],
        ),
    ):
        parts = urlsplit(shown)
        assert (parts.netloc, parts.path) == (urlsplit(uri).netloc, urlsplit(uri).path)
        assert parts.fragment == ""
        assert ";" not in parts.query
        assert parse_qsl(parts.query, keep_blank_values=True) == expected


@given(st.text(alphabet="-/:@?#&=;%.[]qemu+sh1%0a\n", max_size=40))
def test_of_a_uri_that_was_let_in_only_user_host_port_and_path_are_passed_on(tail: str) -> None:
    try:
        uri = check_uri(f"qemu+ssh://{tail}")
    except UriRefusedError:
        return

    shown = urlsplit(ssh_uri(uri, known_hosts="/k", key_file="/i"))

    names = [name for name, _ in parse_qsl(shown.query, keep_blank_values=True)]
    assert names == ["known_hosts", "known_hosts_verify", "sshauth", "keyfile"]
    assert shown.netloc == urlsplit(uri).netloc
    assert all(
        len(line.split(" ")) == 3 and line.startswith(("[", shown.hostname or "-"))
        for line in known_hosts(uri, (KEY,)).splitlines()
    )


@pytest.mark.parametrize(
    ("uri", "known_as"),
    [
        ("qemu+ssh://root@kvm-1.example/system", "kvm-1.example"),
        ("qemu+ssh://root@KVM-1.example:22/system", "kvm-1.example"),
        ("qemu+ssh://root@kvm-1.example:2222/system", "[kvm-1.example]:2222"),
        ("qemu+ssh://[fd00::7]/system", "fd00::7"),
        ("qemu+ssh://[fd00::7]:2222/system", "[fd00::7]:2222"),
    ],
)
def test_a_host_is_known_by_its_address_and_port(uri: str, known_as: str) -> None:
    assert known_hosts(uri, (KEY, KEY)) == f"{known_as} {KEY}\n" * 2


def test_a_folder_is_never_told_not_even_as_a_uri_writes_it() -> None:
    credential = Credential(name="site", folder="/etc/my keys/site")

    shown = credential.mask(
        "cannot read '/etc/my keys/site/id' of qemu+tls://h/?pkipath=/etc/my%20keys/site"
    )

    assert shown == "cannot read 'credential site/id' of qemu+tls://h/?pkipath=credential site"
    assert "/etc" not in repr(credential)


@given(FOLDERS, st.lists(st.text(max_size=20), max_size=3))
def test_a_credential_reaches_the_child_unchanged(folder: str, keys: list[str]) -> None:
    credential = Credential(name="a", folder=folder, stamp="1", ssh_host_keys=tuple(keys))

    assert Credential.from_json(credential.to_json()) == credential
