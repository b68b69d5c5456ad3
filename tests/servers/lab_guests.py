"""What a guest of the lab does when it is told to, by its console."""

from __future__ import annotations

import re

from hypervisor import HostConnection
from tests.fakes.hypervisor import FakeHypervisor
from tests.servers.running import eventually


def run_in_guest(host: HostConnection | FakeHypervisor, vm_id: str, words: str) -> list[str]:
    """Have a real guest's shell run something; return what it said."""
    host.open_console(vm_id, force=True)
    typed, heard = f"run {words}\r".encode(), b""

    def has_run() -> bool:
        nonlocal typed, heard
        answer = host.exchange_console(typed, wait_s=0.5)
        typed, heard = typed[answer.taken :], heard + answer.content
        return re.search(rb"LAB-GUEST-RAN \d+\r?\n", heard) is not None

    eventually(has_run)
    host.release_console()
    lines = [line.strip() for line in heard.decode(errors="replace").splitlines()]
    mark = "LAB-GUEST-SAID "
    return [line.removeprefix(mark) for line in lines if line.startswith(mark)]
