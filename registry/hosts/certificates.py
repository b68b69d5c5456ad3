"""Whether a client's certificate, its key and its authority fit each other, and until when."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from pathlib import Path


def end_of_validity(authority: Path, certificate: Path, key: Path) -> datetime:
    """Return when the first of the certificate and its authorities ends.

    Raises
    ------
    OSError
        If the files do not fit each other, or one of them is none (`ssl.SSLError`).

    Notes
    -----
    A handshake with ourselves, in memory: what verifies certificates in earnest says what
    is wrong with them, and reads their dates.
    """
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate, key)
    server.load_verify_locations(authority)
    server.verify_mode = ssl.CERT_REQUIRED
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_mode = ssl.CERT_NONE
    client.load_cert_chain(certificate, key)

    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(back, there),
        server.wrap_bio(there, back, server_side=True),
    ]
    shaking = list(ends)
    while shaking:
        for end in list(shaking):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            shaking.remove(end)
    shown = ends[1].getpeercert() or {}
    dates = [found["notAfter"] for found in (shown, *server.get_ca_certs())]
    return datetime.fromtimestamp(min(ssl.cert_time_to_seconds(str(date)) for date in dates), UTC)
