"""Files that open hosts are used only when nobody else can read or change them."""

from __future__ import annotations

import os
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from controller.cli.doctor.certificates import credential_findings
from registry import HostCredentialError
from registry.hosts import HostCredentials
from registry.hosts.uris import HostAccessMethod, access_method_of

TLS_URI, SSH_URI = "qemu+tls://kvm-1/system", "qemu+ssh://root@kvm-1/system"


@pytest.fixture
def credentials(tmp_path: Path) -> HostCredentials:
    """One credential, `site`, with everything."""
    folder = tmp_path / "host-credentials"
    site = folder / "site"
    site.mkdir(parents=True, mode=0o755)
    folder.chmod(0o755)
    for name in ("cacert.pem", "clientcert.pem", "clientkey.pem", "id"):
        (site / name).write_text(f"content of {name}")
        (site / name).chmod(0o600)
    return HostCredentials(folder)


@pytest.mark.parametrize(
    ("uri", "opening"),
    [
        (TLS_URI, HostAccessMethod.TLS),
        (SSH_URI, HostAccessMethod.SSH),
        ("qemu+libssh://kvm-1/system", HostAccessMethod.SSH),
        ("qemu+libssh2://kvm-1/system", HostAccessMethod.SSH),
        ("qemu+tcp://kvm-1/system", None),
        ("qemu+unix:///system?socket=/run/s", None),
        ("test:///default", None),
    ],
)
def test_what_opens_a_host_follows_from_its_uri(uri: str, opening: HostAccessMethod | None) -> None:
    assert access_method_of(uri) is opening


@pytest.mark.parametrize("uri", [TLS_URI, SSH_URI])
def test_files_in_order_are_found_and_never_shown(credentials: HostCredentials, uri: str) -> None:
    found = credentials.find(uri, "site")

    assert found is not None
    assert found.folder == credentials.folder / "site"
    assert str(credentials.folder) not in repr(found)


def test_without_a_credential_tls_takes_what_the_machine_has_and_ssh_is_refused(
    credentials: HostCredentials,
) -> None:
    assert credentials.find(TLS_URI, None) is None
    assert credentials.find("qemu+tcp://kvm-1/system", None) is None
    with pytest.raises(HostCredentialError, match="fuga host set HOST --credential NAME"):
        credentials.find(SSH_URI, None)


@pytest.mark.parametrize(
    ("file", "mode", "reason"),
    [
        ("clientkey.pem", 0o644, r"clientkey.pem can be read by others \(mode 0644\): chmod 600"),
        ("clientkey.pem", 0o660, "clientkey.pem can be read by others"),
        ("clientcert.pem", 0o666, "clientcert.pem can be changed by others"),
        ("cacert.pem", 0o620, "cacert.pem can be changed by others"),
        (".", 0o777, "can be written by others"),
        ("..", 0o775, "can be written by others"),
    ],
)
def test_a_file_that_others_can_read_or_change_is_refused(
    credentials: HostCredentials, file: str, mode: int, reason: str
) -> None:
    (credentials.folder / "site" / file).chmod(mode)

    with pytest.raises(HostCredentialError, match=reason) as caught:
        credentials.find(TLS_URI, "site")

    assert str(credentials.folder) not in str(caught.value)
    assert "content" not in str(caught.value)


def test_certificates_may_be_read_by_all_and_a_key_of_root_by_its_group(
    credentials: HostCredentials,
) -> None:
    site = credentials.folder / "site"
    (site / "cacert.pem").chmod(0o644)
    (site / "clientcert.pem").chmod(0o644)
    assert credentials.find(TLS_URI, "site") is not None

    (site / "clientkey.pem").chmod(0o640)
    if (site / "clientkey.pem").stat().st_uid == 0:
        assert credentials.find(TLS_URI, "site") is not None
        os.chown(site / "clientkey.pem", 65534, 65534)
    with pytest.raises(HostCredentialError, match="can be read by others"):
        credentials.find(TLS_URI, "site")


@pytest.mark.parametrize("file", ["cacert.pem", "clientcert.pem", "clientkey.pem"])
def test_a_missing_or_empty_file_is_named(credentials: HostCredentials, file: str) -> None:
    path = credentials.folder / "site" / file
    path.write_text("")
    with pytest.raises(HostCredentialError, match=f"{file} is empty"):
        credentials.find(TLS_URI, "site")

    path.unlink()
    with pytest.raises(HostCredentialError, match=f"{file} is missing"):
        credentials.find(TLS_URI, "site")

    assert credentials.find(SSH_URI, "site") is not None


def test_a_credential_that_is_not_here_says_where_it_should_be(tmp_path: Path) -> None:
    nowhere = HostCredentials(tmp_path / "none")

    assert nowhere.names() == ()
    with pytest.raises(HostCredentialError, match="FUGA_HOST_CREDENTIALS"):
        nowhere.find(TLS_URI, "site")


def test_a_file_that_is_replaced_changes_the_stamp(credentials: HostCredentials) -> None:
    before = credentials.find(TLS_URI, "site")
    assert credentials.find(TLS_URI, "site") == before

    key = credentials.folder / "site" / "clientkey.pem"
    fresh = key.with_name("new")
    fresh.write_bytes(key.read_bytes())
    fresh.chmod(0o600)
    fresh.replace(key)

    assert credentials.find(TLS_URI, "site") != before


def openssl(folder: Path, *words: str) -> None:
    subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)


def certify(folder: Path, *, days: int) -> HostCredentials:
    """Make a credential `site` by OpenSSL, as the operator's guide says."""
    site = folder / "site"
    site.mkdir(parents=True)
    new_key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    openssl(
        site, "req", "-x509", *new_key, "-days", "3650", "-subj", "/CN=our hosts",
        "-keyout", "cakey.pem", "-out", "cacert.pem",
    )  # fmt: skip
    openssl(site, "req", *new_key, "-subj", "/CN=fuga", "-keyout", "clientkey.pem", "-out", "csr")
    openssl(
        site, "x509", "-req", "-in", "csr", "-CA", "cacert.pem", "-CAkey", "cakey.pem",
        "-CAcreateserial", "-days", str(days), "-out", "clientcert.pem",
    )  # fmt: skip
    for each in (folder, site):
        each.chmod(0o700)
    return HostCredentials(folder)


def test_the_first_end_of_its_certificates_is_a_credentials_end(tmp_path: Path) -> None:
    store = certify(tmp_path / "c", days=20)

    left = store.end_of_validity("site") - datetime.now(UTC)

    assert timedelta(days=19) < left <= timedelta(days=20)


def test_files_that_do_not_fit_each_other_are_told_apart(tmp_path: Path) -> None:
    store, other = certify(tmp_path / "c", days=20), certify(tmp_path / "d", days=20)

    (store.folder / "site" / "cacert.pem").write_bytes(
        (other.folder / "site" / "cacert.pem").read_bytes()
    )
    with pytest.raises(HostCredentialError, match=r"clientcert\.pem is not good for"):
        store.end_of_validity("site")

    (store.folder / "site" / "clientkey.pem").write_bytes(
        (other.folder / "site" / "clientkey.pem").read_bytes()
    )
    with pytest.raises(HostCredentialError, match="do not fit each other"):
        store.end_of_validity("site")

    (store.folder / "site" / "clientcert.pem").write_text("hello")
    with pytest.raises(HostCredentialError, match="do not fit each other"):
        store.end_of_validity("site")


def test_the_doctor_looks_at_every_credential_here(tmp_path: Path) -> None:
    store = certify(tmp_path / "c", days=20)
    for name in ("ssh", "open", "empty"):
        (store.folder / name).mkdir(mode=0o700)
    for name, mode in (("ssh", 0o600), ("open", 0o644)):
        (store.folder / name / "id").write_text("key")
        (store.folder / name / "id").chmod(mode)
    now = datetime.now(UTC)

    found = {each.about: each for each in credential_findings(store, now)}
    earlier = {each.about: each for each in credential_findings(store, now - timedelta(days=20))}

    assert [name for name, each in sorted(found.items()) if each.well] == ["credential ssh"]
    assert "a certificate ends at 20" in found["credential site"].message
    assert "mode 0644" in found["credential open"].message
    assert "holds no files for TLS or SSH" in found["credential empty"].message
    assert earlier["credential site"].well
    assert str(store.folder) not in str(found)
