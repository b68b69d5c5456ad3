"""The certificate that the API shows, and how it is changed while it serves."""

from __future__ import annotations

import signal
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import structlog

from controller.rest.problems.errors import CertificateError

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ServerCertificate:
    """A chain, the server's own first, and the key that belongs to it; PEM files."""

    chain: Path
    key: Path

    def load_into(self, context: ssl.SSLContext) -> None:
        """Let new connections see what the files hold now, or raise `CertificateError`."""
        try:
            context.load_cert_chain(self.chain, self.key)
        except (OSError, ValueError) as error:  # SSLError is one: no PEM, or another's key
            reason = getattr(error, "strerror", None) or str(error)
            raise CertificateError(self.chain, self.key, reason) from None

    def context(self) -> ssl.SSLContext:
        """Return what a server speaks TLS with."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.load_into(context)
        return context


@contextmanager
def renewed_on_hangup(context: ssl.SSLContext, certificate: ServerCertificate) -> Iterator[None]:
    """Read the files again on SIGHUP; connections that are open keep what they have."""

    def renew(_number: int, _frame: object) -> None:
        try:
            certificate.context()  # a bad pair must not replace the good one
            certificate.load_into(context)
        except CertificateError as error:
            log.error("certificate_not_renewed", error=str(error))
        else:
            log.info("certificate_renewed", file=str(certificate.chain))

    before = signal.signal(signal.SIGHUP, renew)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)
