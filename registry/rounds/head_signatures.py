"""The site's private key, which signs the link of each round.

The key is an Ed25519 key in a PEM file (PKCS 8, not encrypted) that its owner alone can read. The
file stays on the machines of control centres; the register center has the public key.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog

from registry.db.private_files import sync_to_disk
from registry.errors import RegistryError
from registry.records.proofs import HeadSignature
from registry.records.usage import EntrySignature
from registry.usage.entry_digests import entry_message

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

#: A real key has 119 bytes.
_MAX_BYTES: Final = 4096
_OTHERS_ANYTHING: Final = 0o077

log: Final = structlog.get_logger(__name__)


class SiteKeyError(RegistryError):
    """The file of the private key is missing, not private, or no Ed25519 key."""


class PrivateKey:
    """A private key of the site."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.public_key: Final = key.public_key().public_bytes_raw().hex()

    @classmethod
    def generate(cls) -> PrivateKey:
        """Return a new key."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415 - slow

        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def read(cls, file: Path) -> PrivateKey:
        """Read the key from its file, or raise `SiteKeyError`."""
        return cls._parse(file, _read_private_file(file))

    @classmethod
    def _parse(cls, file: Path, content: bytes) -> PrivateKey:
        from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415 - slow
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415
        from cryptography.hazmat.primitives.serialization import load_pem_private_key  # noqa: PLC0415

        try:
            key = load_pem_private_key(content, password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise SiteKeyError(f"{file} is no private key in PEM without a password") from error
        if not isinstance(key, Ed25519PrivateKey):
            raise SiteKeyError(f"{file} is no Ed25519 key")
        return cls(key)

    def pem(self) -> bytes:
        """Return the content of the key's file."""
        from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415 - slow
            Encoding,
            NoEncryption,
            PrivateFormat,
        )

        return self._key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    def sign_head(self, number: int, link: str) -> HeadSignature:
        """Sign the link of a round."""
        return HeadSignature(
            key=self.public_key, signature=self._key.sign(head_message(number, link)).hex()
        )

    def sign_entry(self, number: int, link: str) -> EntrySignature:
        """Sign the link of a closed month or a correction."""
        return EntrySignature(
            key=self.public_key, signature=self._key.sign(entry_message(number, link)).hex()
        )

    def endorse(self, successor: str, first_round: int) -> str:
        """Sign the public key that signs from a round on."""
        message = endorsement_message(self.public_key, successor, first_round)
        return self._key.sign(message).hex()


def head_message(number: int, link: str) -> bytes:
    """Return the bytes that a signature of a link is made over."""
    return f"fuga head 1\n{number}\n{link}\n".encode()


def endorsement_message(key: str, successor: str, first_round: int) -> bytes:
    """Return the bytes that one key signs to name the next one."""
    return f"fuga key 1\n{key}\n{successor}\n{first_round}\n".encode()


class HeadSigner:
    """Signs links with the key of a file, which it reads again when the file changes.

    It never raises: without a usable key links are not signed, and the reason is logged once.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._key: PrivateKey | None = None
        self._read_at: tuple[int, ...] = ()
        self._problem: str | None = None

    def warm_up(self) -> None:
        """Read the key before the first round, which then need not import the library."""
        with suppress(Exception):  # the round logs the reason
            self._load()

    def sign_head(self, number: int, link: str, current_key: str | None) -> HeadSignature | None:
        """Sign the link of a round, or return None.

        Parameters
        ----------
        current_key : str or None
            The site's present public key. The key of another is not used.
        """
        try:
            signature, problem = self._sign(number, link, current_key)
        except Exception as error:
            signature, problem = None, f"{type(error).__name__}: {error}"
        if problem != self._problem:
            self._problem = problem
            if problem is not None:
                log.warning("rounds_not_signed", reason=problem)
        return signature

    def sign_entry(self, number: int, link: str, current_key: str | None) -> EntrySignature | None:
        """Sign the link of a closed month or a correction, or return None, as `sign_head` does."""
        try:
            key, _ = self._current_key(current_key)
            return None if key is None else key.sign_entry(number, link)
        except Exception as error:
            log.warning("closed_month_not_signed", reason=f"{type(error).__name__}: {error}")
            return None

    def _sign(
        self, number: int, link: str, current_key: str | None
    ) -> tuple[HeadSignature | None, str | None]:
        key, problem = self._current_key(current_key)
        return (None if key is None else key.sign_head(number, link)), problem

    def _current_key(self, current_key: str | None) -> tuple[PrivateKey | None, str | None]:
        """Return the key of the file if it is the site's present one, else why it is not used."""
        if current_key is None:
            return None, None  # an operator has created no key
        key = self._load()
        if key.public_key != current_key:
            return None, f"{self._file} has key {key.public_key}, the site's is {current_key}"
        return key, None

    def _load(self) -> PrivateKey:
        found = self._file.stat()
        read_at = (found.st_mtime_ns, found.st_ino, found.st_size, found.st_mode)
        if self._key is None or read_at != self._read_at:
            self._key = None
            self._key, self._read_at = PrivateKey.read(self._file), read_at
        return self._key


def write_private_key(file: Path, key: PrivateKey) -> None:
    """Write a new key file for its owner alone; raise `SiteKeyError` if the file exists."""
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise SiteKeyError(f"{file} exists already") from None
    except OSError as error:
        raise SiteKeyError(f"cannot write {file}: {error.strerror}") from error
    try:
        with os.fdopen(descriptor, "wb") as opened:
            opened.write(key.pem())
            opened.flush()
            os.fsync(opened.fileno())
        sync_to_disk(file.parent)
    except OSError as error:
        file.unlink(missing_ok=True)
        raise SiteKeyError(f"cannot write {file}: {error.strerror}") from error


def replace_private_key(file: Path, by: Path) -> None:
    """Put the key file ``by`` in the place of another one."""
    try:
        by.replace(file)
        sync_to_disk(file.parent)
    except OSError as error:
        raise SiteKeyError(f"cannot replace {file}: {error.strerror}") from error


def _read_private_file(file: Path) -> bytes:
    """Return the content of a regular file of its owner alone; a named pipe is not waited for."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as opened:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise SiteKeyError(f"{file} is no regular file")
            if stat.S_IMODE(found.st_mode) & _OTHERS_ANYTHING:
                raise SiteKeyError(f"others may read {file}: chmod 600 {file}")
            return opened.read(_MAX_BYTES)
    except OSError as error:
        raise SiteKeyError(f"cannot read {file}: {error.strerror}") from error
