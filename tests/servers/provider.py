"""Runs the provider of `provider_app`, a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from controller.oidc_mapping import OidcRule
from controller.rest.login.identity_provider import IdentityProvider, ProviderSettings
from tests.servers import provider_app
from tests.servers.provider_app import PASSWORD

__all__ = ["PASSWORD", "RULES", "a_provider", "provider_at"]

RULES = (
    OidcRule(claim="groups", value="cloud-admins", operator=True),
    OidcRule(claim="groups", value="physics", tenant="a"),
)


@contextmanager
def a_provider(folder: Path) -> Iterator[str]:
    """Run it, and give its issuer."""
    process = subprocess.Popen(
        [sys.executable, provider_app.__file__, str(folder)],
        stdout=subprocess.PIPE,
        stderr=(folder / "provider.log").open("w"),
        text=True,
    )
    try:
        assert process.stdout is not None
        port = process.stdout.readline().strip()
        assert port, (folder / "provider.log").read_text()
        yield f"http://127.0.0.1:{port}/o"
    finally:
        process.terminate()
        process.wait()


def provider_at(issuer: str, *, client_secret: str | None = None) -> IdentityProvider:
    """Return how an API knows it."""
    return IdentityProvider(
        ProviderSettings(
            issuer=issuer,
            client_id="fuga" if client_secret is None else "fuga-api",
            client_secret=client_secret,
            rules=RULES,
        )
    )
