"""Open a host with its credential, and explain failures in plain words. Child process only.

libvirt speaks SSH by libssh, which also reads the SSH configuration and known hosts of the machine
and of the user. Either can make libssh accept a host key that no operator registered. So each
connection first expects a host key that no host has, which libssh has to refuse.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import re
import stat
from collections.abc import Iterator
from typing import Final

import libvirt

from hypervisor.credential import NO_FILE, Credential, is_ssh, known_hosts, ssh_uri, tls_uri
from hypervisor.errors import HostUnreachableError
from hypervisor.xml import domain as domain_xml
from plain_text import are_host_names_apart, split_host_name

#: A key without a private half: its 32 bytes are a hash.
_UNUSED_KEY: Final = (
    b"\0\0\0\x0bssh-ed25519\0\0\0\x20" + hashlib.sha256(b"no host has this key").digest()
)
_UNUSED_KEY_LINE: Final = "ssh-ed25519 " + base64.b64encode(_UNUSED_KEY).decode()
_DIFFERS: Final = "HOST KEY VERIFICATION FAILED"
_FINGERPRINT: Final = re.compile(r"\b[0-9a-f]{2}(?::[0-9a-f]{2}){31}\b")
_LOGGED: Final = re.compile(r"Certificate check failed (.*)")
_LOG_READ_BYTES: Final = 4096


def open_host(
    uri: str, credential: Credential | None, machine: str | None = None
) -> libvirt.virConnect:
    """Return a connection to a host; ``machine`` is its UUID or `UUID/NAME`, if known.

    A `?` before the UUID accepts a machine that reports none.

    Raises
    ------
    HostUnreachableError
        With a reason that says what to do: the credential or the host key is wrong, or another
        machine answers at the address.
    libvirt.libvirtError
        For all other errors.
    """
    conn = _open_connection(uri, credential)
    if machine is not None:
        try:
            _check_machine(conn, uri, machine)
        except BaseException:
            with contextlib.suppress(libvirt.libvirtError):
                conn.close()
            raise
    return conn


def _check_machine(conn: libvirt.virConnect, uri: str, machine: str) -> None:
    """Raise `HostUnreachableError` if another machine answers at the host's address."""
    may_lack_uuid, machine = machine.startswith("?"), machine.removeprefix("?")
    uuid, _, name = machine.partition("/")
    found = domain_xml.machine_uuid(conn.getCapabilities())
    if found is None:
        if may_lack_uuid:
            return
        raise HostUnreachableError(
            uri,
            f"a machine that reports no UUID answers at its address, and its own is {uuid}: it is"
            " the host's if its next poll shows one of the host's VMs or disks, or the host has no"
            " VM; else fuga doctor --hosts says what to do",
        )
    shown = conn.getHostname() if name and found == uuid else ""
    if are_host_names_apart(split_host_name(shown), split_host_name(name)):
        found = f"{found}/{shown}"
    else:
        machine = uuid
    if found != machine:
        raise HostUnreachableError(
            uri,
            f"machine {found} answers at its address, and its own is {machine}: fuga doctor"
            " --hosts says what to do",
        )


def _open_connection(uri: str, credential: Credential | None) -> libvirt.virConnect:
    """Return a connection to a host with its credential; errors say what to do."""
    if credential is None:
        return libvirt.open(uri)
    if is_ssh(uri):
        return _open_by_ssh(uri, credential)
    said_before = _log_length()
    try:
        return libvirt.open(tls_uri(uri, credential))
    except libvirt.libvirtError as error:
        reason = _explain_tls_error(str(error), credential, _libvirt_log_since(said_before))
        raise HostUnreachableError(uri, reason) from error


def _open_by_ssh(uri: str, credential: Credential) -> libvirt.virConnect:
    """Return a connection over SSH, with the credential's key and only registered host keys."""
    shown = _read_fingerprint(uri)
    if not credential.ssh_host_keys:
        raise HostUnreachableError(
            uri,
            f"it shows the SSH host key {shown}, and none is registered. Compare it on the host"
            " itself (ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub), then give that file's"
            " content: fuga host set HOST --ssh-host-key 'ssh-ed25519 …'",
        )
    with _memory_file(known_hosts(uri, credential.ssh_host_keys)) as path:
        target = ssh_uri(uri, known_hosts=path, key_file=f"{credential.folder}/id")
        try:
            return libvirt.open(target)
        except libvirt.libvirtError as error:
            text = str(error)
            if _DIFFERS in text:
                known = ", ".join(_fingerprint_of(key) for key in credential.ssh_host_keys)
                raise HostUnreachableError(
                    uri,
                    f"it shows the SSH host key {_fingerprint_in(text)}, and {known} is registered:"
                    " it was reinstalled, or another machine answers in its place. If its new"
                    " key is this one (ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub on the host"
                    " itself): fuga host set HOST --ssh-host-key 'ssh-ed25519 …'",
                ) from error
            if "Access denied" in text:
                raise HostUnreachableError(
                    uri,
                    f"it does not accept the key of credential {credential.name}: its public key,"
                    " id.pub, belongs into authorized_keys of the user there. A key with a"
                    " passphrase cannot be used",
                ) from error
            raise


def _read_fingerprint(uri: str) -> str:
    """Return the fingerprint of a host's SSH key, without authenticating.

    The caller must not treat the key as known.
    """
    with _memory_file(known_hosts(uri, (_UNUSED_KEY_LINE,))) as path:
        try:
            libvirt.open(ssh_uri(uri, known_hosts=path, key_file=NO_FILE)).close()
        except libvirt.libvirtError as error:
            if _DIFFERS in str(error):
                return _fingerprint_in(str(error))
            if NO_FILE not in str(error):
                raise
    raise HostUnreachableError(
        uri,
        "not opened: on this machine SSH takes any host key, or has one of this host from"
        " elsewhere. Take StrictHostKeyChecking out of /etc/ssh/ssh_config and ~/.ssh/config of"
        " the user that runs this, and the host out of /etc/ssh/ssh_known_hosts",
    )


def _explain_tls_error(text: str, credential: Credential, logged: str) -> str:
    """Return why a TLS connection failed and what to do, from libvirt's error and log."""
    if "verify peer" in text:
        said = _LOGGED.findall(logged)
        why = said[-1] if said else "of another authority, expired, or for another name"
        return (
            f"its certificate is refused: {why}; cacert.pem of credential {credential.name} must"
            " hold the authority of the host's certificate, and that must name the address in"
            " the host's URI"
        )
    if "TLS confirmation" in text:
        return (
            f"it refuses clientcert.pem of credential {credential.name}: the authority of that"
            " must be in the cacert.pem of the host's libvirtd, which may also list the clients"
            " it lets in (tls_allowed_dn_list)"
        )
    return text


def _log_length() -> int | None:
    """Return the size of libvirt's log on standard error in bytes; None if that is no file."""
    status = os.fstat(2)
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def _libvirt_log_since(length: int | None) -> str:
    """Return the details that libvirt logs but leaves out of its errors."""
    if length is None:
        return ""
    try:
        return os.pread(2, _LOG_READ_BYTES, length).decode(errors="replace")
    except OSError:  # open only for writing
        return ""


def _fingerprint_in(text: str) -> str:
    """Return the fingerprint of a host key in a message of libvirt's, as OpenSSH writes it."""
    found = _FINGERPRINT.search(text)
    return _openssh_fingerprint(bytes.fromhex(found[0].replace(":", ""))) if found else "(unknown)"


def _fingerprint_of(key: str) -> str:
    """Return the fingerprint of an SSH public key, as OpenSSH writes it."""
    return _openssh_fingerprint(hashlib.sha256(base64.b64decode(key.split()[1])).digest())


def _openssh_fingerprint(digest: bytes) -> str:
    """Return a SHA-256 digest as OpenSSH writes fingerprints."""
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


@contextlib.contextmanager
def _memory_file(text: str) -> Iterator[str]:
    """Yield the path of an in-memory file with this text; no other process can open it."""
    descriptor = os.memfd_create("known_hosts")
    try:
        os.write(descriptor, text.encode())
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
