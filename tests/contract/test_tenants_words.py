"""What hosts really say of failures tells a tenant nothing of the machine."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from urllib.parse import parse_qs, urlsplit

import pytest

from controller.host_aliases import HostNames, Viewer
from hypervisor import HostConnection, HypervisorError
from registry.hosts import HostIdentity
from tests.contract.conftest import Ground

HOST = "kvm-07"
#: Nobody listens there, or there is nobody of that name; each is asked by libvirt itself.
UNREACHABLE = (
    "qemu+ssh://operator@127.0.0.1:1/system",
    "qemu+ssh://operator@[::1]:1/system",
    "qemu+ssh://operator@jump1.invalid/system",
    "qemu+tls://127.0.0.1:1/system",
    "qemu+unix:///system?socket=/nonexistent/kvm-07/libvirt-sock",
)
PLACES = re.compile(
    r"\w://|127\.0\.0\.1|::1|operator|jump1|invalid|/nonexistent|/etc/|/run/|/var/|/tmp/|\.ssh"
)


class Site:
    """A register center with this one host."""

    def __init__(self, uri: str) -> None:
        self.uri = uri

    def secret(self) -> bytes:
        return b"secret"

    def change_mark(self) -> int:
        return 1

    def all(self) -> list[HostIdentity]:
        return [HostIdentity(name=HOST, uri=self.uri, hostname=None, retired=False)]


def said_to_both(uri: str, failing: Callable[[], object]) -> tuple[str, str]:
    """What an operator and a tenant read of a failure."""
    with pytest.raises(HypervisorError) as failed:
        failing()
    written = f"host {HOST}: {failed.value}"
    names = HostNames(lambda: Site(uri))
    return Viewer(None, names).redact_text(written), Viewer("a", names).redact_text(written)


@pytest.mark.parametrize("uri", UNREACHABLE)
def test_of_a_host_that_does_not_answer(uri: str) -> None:
    def ask() -> None:
        with HostConnection(uri, deadline_s=20.0) as host:
            host.find(str(uuid.uuid4()))

    operator, tenant = said_to_both(uri, ask)

    assert uri in operator
    assert "does not answer" in tenant
    assert not PLACES.search(tenant), tenant
    assert HOST not in tenant


def test_of_a_host_that_refuses(ground: Ground) -> None:
    shown = []
    uri = ground.host.uri
    gone = str(uuid.uuid4())
    spec = ground.spec()
    ground.create_volume(spec)

    for failing in (
        lambda: ground.host.open_console(gone, force=False),
        lambda: ground.host.console_tail(gone),
        lambda: ground.host.start_paused(gone),
        lambda: ground.create_volume(spec, capacity_gib=9_000_000_000),
        lambda: ground.host.report("no-such-pool"),
    ):
        try:
            failing()
        except HypervisorError as error:
            names = HostNames(lambda: Site(uri))
            tenant = Viewer("a", names).redact_text(str(error))
            socket = parse_qs(urlsplit(uri).query).get("socket", ["/run/"])[0]
            shown.append(tenant)
            assert socket not in tenant
            assert not PLACES.search(tenant), tenant

    assert len(shown) >= 2
