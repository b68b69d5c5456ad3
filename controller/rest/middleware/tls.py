"""The API's TLS certificate, and its renewal while the API serves."""

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
    """PEM files of a certificate chain (the server's first) and its private key."""

    chain: Path
    key: Path

    def load_into(self, context: ssl.SSLContext) -> None:
        """Load the files into a context for new connections, or raise `CertificateError`."""
        try:
            context.load_cert_chain(self.chain, self.key)
        except (OSError, ValueError) as error:  # SSLError is one: no PEM, or another's key
            reason = getattr(error, "strerror", None) or str(error)
            raise CertificateError(self.chain, self.key, reason) from None

    def context(self) -> ssl.SSLContext:
        """Return a server's TLS context with this certificate."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.load_into(context)
        return context


@contextmanager
def renewed_on_hangup(context: ssl.SSLContext, certificate: ServerCertificate) -> Iterator[None]:
    """Reload the certificate on SIGHUP; open connections keep the old one."""

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
