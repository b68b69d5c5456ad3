"""Which machines a worker takes for the host that it means."""

from __future__ import annotations

from typing import cast

import libvirt
import pytest

from hypervisor import HostUnreachableError
from hypervisor.child import connect

OWN = "4c4c4544-0044-4b10-8051-b4c04f4e5931"
OTHER = "4c4c4544-0044-4b10-8051-b4c04f4e5932"


class Machine:
    """A host's libvirt that reports a UUID, or none, in its capabilities."""

    def __init__(self, uuid: str | None) -> None:
        self._uuid = uuid
        self.closed = False

    def getCapabilities(self) -> str:  # noqa: N802 - libvirt's name
        uuid = "" if self._uuid is None else f"<uuid>{self._uuid}</uuid>"
        return f"<capabilities><host>{uuid}</host></capabilities>"

    def getHostname(self) -> str:  # noqa: N802 - libvirt's name
        return "kvm7"

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize(
    ("reported", "meant", "refusal"),
    [
        (OWN, None, None),
        (None, None, None),
        (OWN, OWN, None),
        (OWN, f"?{OWN}", None),
        (OWN, f"?{OWN}/kvm7", None),
        (None, f"?{OWN}", None),
        (None, f"?{OWN}/kvm7", None),
        (None, OWN, f"reports no UUID answers at its address, and its own is {OWN}"),
        (None, f"{OWN}/kvm7", f"reports no UUID answers at its address, and its own is {OWN}"),
        (OTHER, OWN, f"machine {OTHER} answers at its address, and its own is {OWN}:"),
        (OTHER, f"?{OWN}", f"machine {OTHER} answers at its address, and its own is {OWN}:"),
        (OWN, f"?{OWN}/kvm8", "answers at its address"),
    ],
)
def test_a_machine_is_the_hosts_by_its_uuid_or_because_a_report_showed_its_vms(
    monkeypatch: pytest.MonkeyPatch, reported: str | None, meant: str | None, refusal: str | None
) -> None:
    machine = Machine(reported)
    monkeypatch.setattr(libvirt, "open", lambda _: machine)

    if refusal is None:
        assert connect.open_host("qemu:///system", None, meant) is cast("object", machine)
        return
    with pytest.raises(HostUnreachableError, match=refusal):
        connect.open_host("qemu:///system", None, meant)
    assert machine.closed
