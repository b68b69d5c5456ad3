"""How a move that hangs while it is aborted is ended, with libvirt's objects in memory."""

from __future__ import annotations

import json
import time
from typing import Any

import libvirt
import libvirt_qemu
import pytest

from hypervisor import OperationFailedError
from hypervisor.child.driver import LibvirtHost

VM = "11111111-1111-4111-8111-111111111111"


class Leaving:
    """A connection and its one domain, which leaves; it may hang when it is aborted."""

    def __init__(self, *, status: str) -> None:
        self.status = status
        self.told: list[str] = []

    def lookupByUUIDString(self, _: str) -> Leaving:  # noqa: N802
        return self

    def jobStats(self, _: int = 0) -> dict[str, Any]:  # noqa: N802
        over = self.status == "cancelled"
        return {
            "type": libvirt.VIR_DOMAIN_JOB_NONE if over else libvirt.VIR_DOMAIN_JOB_UNBOUNDED,
            "operation": libvirt.VIR_DOMAIN_JOB_OPERATION_MIGRATION_OUT,
        }

    def abortJob(self) -> None:  # noqa: N802
        if self.status == "active":
            self.status = "cancelled"

    def hear(self, command: str) -> str:
        """Be QEMU's monitor."""
        self.told.append(command)
        requested = json.loads(command)
        if (
            requested["execute"] == "migrate-continue"
            and requested["arguments"]["state"] == self.status
        ):
            self.status = "cancelled"
            return '{"return": {}}'
        return '{"error": {"desc": "Migration not in expected state"}}'


@pytest.fixture
def abort(monkeypatch: pytest.MonkeyPatch) -> Any:
    def done(domain: Leaving, *, hours: float = 0.0) -> None:
        """Abort; with ``hours`` each look at the clock finds it so much later."""
        now = iter(range(1_000_000))
        monkeypatch.setattr(time, "monotonic", lambda: 3600.0 * hours * next(now))
        monkeypatch.setattr(time, "sleep", lambda _: None)
        monkeypatch.setattr(libvirt_qemu, "qemuMonitorCommand", lambda d, c, _: d.hear(c))
        LibvirtHost("test:///default")._abort_move(domain, VM)  # type: ignore[arg-type]

    return done


def test_a_guest_that_stays_paused_while_its_move_is_cancelled_is_let_go(abort: Any) -> None:
    domain = Leaving(status="cancelling")

    abort(domain, hours=0.0005)

    assert domain.status == "cancelled"


def test_a_move_that_ends_when_it_is_aborted_needs_no_more(abort: Any) -> None:
    domain = Leaving(status="active")

    abort(domain)

    assert (domain.status, domain.told) == ("cancelled", [])


def test_a_move_that_hangs_elsewhere_is_not_carried_through(abort: Any) -> None:
    domain = Leaving(status="pre-switchover")

    with pytest.raises(OperationFailedError, match="does not end"):
        abort(domain, hours=0.0005)

    assert domain.told
    assert domain.status == "pre-switchover"
