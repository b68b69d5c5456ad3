"""Certificates for tests: authorities of their own, made by openssl."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


@dataclass(frozen=True)
class Pair:
    """A certificate and its key."""

    certificate: Path
    key: Path


@dataclass(frozen=True)
class Authority:
    """Vouches for servers and clients; files lie in its folder."""

    folder: Path
    days: int = 30  #: of what it signs

    @property
    def certificate(self) -> Path:
        return self.folder / "ca.pem"

    @classmethod
    def make(cls, folder: Path, days: int = 30) -> Authority:
        folder.mkdir(parents=True)
        made = cls(folder, days)
        _openssl(
            "req", "-x509", *_KEY, "-keyout", str(folder / "ca.key"), "-out",
            str(made.certificate), "-days", str(days), "-subj", f"/CN={folder.name}",
            "-addext", "keyUsage=critical,keyCertSign,cRLSign",
        )  # fmt: skip
        return made

    def server(
        self, name: str = "server", common_name: str = "server", names: str = "IP:127.0.0.1"
    ) -> Pair:
        """For 127.0.0.1, and for no name; without ``names`` for its common name alone."""
        extension = f"subjectAltName={names}" if names else ""
        return self._issue(name, common_name, "serverAuth", extension)

    def client(self, common_name: str) -> Pair:
        return self._issue(f"client-{common_name}", common_name, "clientAuth")

    def _issue(self, file: str, common_name: str, usage: str, extension: str = "") -> Pair:
        pair = Pair(self.folder / f"{file}.pem", self.folder / f"{file}.key")
        request, extensions = self.folder / f"{file}.csr", self.folder / f"{file}.ext"
        extensions.write_text(
            "basicConstraints=critical,CA:FALSE\n"
            # libvirt refuses a certificate that may not encipher keys.
            "keyUsage=critical,digitalSignature,keyEncipherment\n"
            f"extendedKeyUsage={usage}\n{extension}\n"
        )
        subject = ("-subj", f"/CN={common_name}")
        _openssl("req", *_KEY, "-keyout", str(pair.key), "-out", str(request), *subject)
        _openssl(
            "x509", "-req", "-in", str(request), "-CA", str(self.certificate), "-CAkey",
            str(self.folder / "ca.key"), "-CAcreateserial", "-days", str(self.days), "-out",
            str(pair.certificate), "-extfile", str(extensions),
        )  # fmt: skip
        pair.key.chmod(0o600)
        return pair


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)
