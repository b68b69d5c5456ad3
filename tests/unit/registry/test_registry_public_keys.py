"""Public keys: what is taken for one, and what is said of anything else."""

from __future__ import annotations

import base64
import shutil
import subprocess

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from registry import InvalidError
from registry.tenancy.public_keys import MAX_KEYS, check_public_key, check_public_keys, fingerprint
from tests.builders import a_public_key


def test_a_key_is_taken_with_or_without_a_comment():
    key = a_public_key("me@laptop")
    bare = " ".join(key.split()[:2])

    assert check_public_key("k", f"  {key}\n") == key
    assert check_public_key("k", bare) == bare
    assert fingerprint(key) == fingerprint(bare)


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen is not installed")
@pytest.mark.parametrize("kind", ["ed25519", "rsa", "ecdsa"])
def test_keys_of_openssh_are_known_by_its_own_fingerprints(kind, tmp_path):
    file = tmp_path / "id"
    subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", "", "-f", str(file)], check=True)
    printed = subprocess.run(
        ["ssh-keygen", "-l", "-f", f"{file}.pub"], check=True, capture_output=True, text=True
    ).stdout

    key = check_public_key("k", (tmp_path / "id.pub").read_text())

    assert fingerprint(key) == printed.split()[1]


SECRET = "-----BEGIN OPENSSH PRIVATE KEY-----\nc2VjcmV0\n-----END OPENSSH PRIVATE KEY-----"


def cut_short(key: str, by: int = 3) -> str:
    """Return a key without its last bytes, or with as many more."""
    kind, data, *_ = key.split()
    blob = base64.b64decode(data)
    blob = blob[:-by] if by > 0 else blob + bytes(-by)
    return f"{kind} {base64.b64encode(blob).decode()}"


def test_a_key_of_rsa_that_openssh_would_not_take_is_refused():
    key = rsa.generate_private_key(public_exponent=65537, key_size=1024).public_key()
    taken = key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
    numbers = rsa.RSAPublicNumbers(e=65537, n=(1 << 511) + 111)
    small = numbers.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()

    assert check_public_key("k", taken) == taken
    with pytest.raises(InvalidError, match="512 bits"):
        check_public_key("k", small)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello",
        "ssh-ed25519",
        "ssh-ed25519 not-base64!",
        "ssh-ed25519 aGVsbG8=",
        cut_short(a_public_key()),
        cut_short(a_public_key(), by=-4),
        "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAAQQDh",
        "ssh-dss AAAAB3NzaC1kc3M=",
        a_public_key().replace("ssh-ed25519", "ssh-rsa", 1),
        f"{a_public_key()}\n{a_public_key('other')}",
        f'command="sh" {a_public_key()}',
        f"{a_public_key()}\x1b[2J",
        f"{a_public_key()} {'x' * 5000}",
        SECRET,
    ],
)
def test_anything_else_is_refused_and_never_quoted(text):
    with pytest.raises(InvalidError) as raised:
        check_public_key("public_key", text)

    assert raised.value.field == "public_key"
    assert len(str(raised.value)) < 500
    assert "c2VjcmV0" not in str(raised.value)


def test_of_many_keys_each_counts_once_and_a_faulty_one_is_pointed_at():
    key = a_public_key()

    assert check_public_keys("ssh_keys", [key, f"{key} again"]) == [f"{key} again"]
    with pytest.raises(InvalidError, match=r"ssh_keys\.1"):
        check_public_keys("ssh_keys", [key, "hello"])
    with pytest.raises(InvalidError, match="at most 64"):
        check_public_keys("ssh_keys", [key] * (MAX_KEYS + 1))
