"""Typing to a guest: the fake answers like the guest of the lab, which answers for itself."""

from __future__ import annotations

import pytest

from hypervisor import HostConnection, OperationFailedError
from tests.contract.conftest import DEADLINE_S, Ground
from tests.fakes.hypervisor import FakeHypervisor
from tests.servers.running import eventually

WAIT_S = 0.2


def another(ground: Ground) -> HostConnection | FakeHypervisor:
    """Somebody else at the same host."""
    if isinstance(ground.host, FakeHypervisor):
        return ground.host
    return HostConnection(ground.host.uri, deadline_s=DEADLINE_S)


def hears(host: HostConnection | FakeHypervisor, typed: bytes, wanted: bytes) -> bool:
    """Type something once, and read until the guest said what is wanted."""
    said = b""

    def read() -> bool:
        nonlocal said, typed
        came = host.exchange_console(typed, wait_s=WAIT_S)
        typed = typed[came.taken :]
        said += came.content
        return wanted in said

    return eventually(read)


@pytest.fixture
def running(ground: Ground) -> str:
    if ground.name == "test_driver":  # its guests say nothing: see the last test
        pytest.skip("guests of the test driver have no console")
    spec = ground.spec()
    ground.run(spec)
    vm_id = spec.mark.vm_id
    eventually(lambda: b"LAB-GUEST-READY" in ground.host.console_tail(vm_id).content)
    return vm_id


def test_a_guest_hears_what_is_typed_and_one_may_type_at_a_time(
    ground: Ground, running: str
) -> None:
    ground.host.open_console(running, force=False)
    assert hears(ground.host, b"what is this\r", b"LAB-GUEST-HEARD what is this\r\n")

    with another(ground) as other:
        with pytest.raises(OperationFailedError, match="ctive console session"):
            other.open_console(running, force=False)
        other.open_console(running, force=True)
        assert hears(other, b"mine now\r", b"LAB-GUEST-HEARD mine now\r\n")
        other.release_console()

    ground.host.open_console(running, force=True)
    ground.host.destroy(running)
    eventually(lambda: ground.host.exchange_console(b"", wait_s=WAIT_S).ended)
    assert b"LAB-GUEST-HEARD mine now" in ground.host.console_tail(running).content


def test_a_guest_that_is_off_has_no_console(ground: Ground) -> None:
    spec = ground.spec()
    ground.define(spec)

    with pytest.raises(OperationFailedError):
        ground.host.open_console(spec.mark.vm_id, force=False)
