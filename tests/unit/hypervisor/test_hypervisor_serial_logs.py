"""Consoles of a host that says what it likes of its files."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from hypervisor import OperationFailedError
from hypervisor.child import serial_logs


def host_with_a_log_of(size: int) -> Any:
    stats = {"block.count": 1, "block.0.name": "vda", "block.0.physical": size}
    return SimpleNamespace(
        getType=lambda: "QEMU",
        lookupByUUIDString=lambda _: SimpleNamespace(blockPeek=lambda *_: b""),
        domainListGetStats=lambda domains, *_: [(domains[0], stats)],
    )


def test_a_log_longer_than_any_file_is_refused_and_nothing_of_it_kept() -> None:
    with pytest.raises(OperationFailedError, match="a log of 18446744073709551615 bytes"):
        serial_logs.tail(host_with_a_log_of(2**64 - 1), vm_id="v", max_bytes=100, after=0)
