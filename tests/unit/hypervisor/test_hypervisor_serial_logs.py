"""Consoles of a host that says what it likes of its files."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import libvirt
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
        serial_logs.read_tail(host_with_a_log_of(2**64 - 1), vm_id="v", max_bytes=100, after=0)


class ForgottenError(libvirt.libvirtError):
    """What libvirt says of a definition that somebody undefined."""

    def __init__(self) -> None:
        Exception.__init__(self, "Domain not found")

    def get_error_code(self) -> int:
        return int(libvirt.VIR_ERR_NO_DOMAIN)


def test_a_reader_that_a_removal_of_another_vm_forgot_is_made_again() -> None:
    host = host_with_a_log_of(3)
    shown = [
        [],
        *([[(None, {"block.count": 1, "block.0.name": "vda", "block.0.physical": 3})]] * 2),
    ]

    def info() -> None:
        raise ForgottenError

    reader = SimpleNamespace(blockPeek=lambda *_: b"log", info=info)
    host.lookupByUUIDString = lambda _: reader
    host.domainListGetStats = lambda *_: shown.pop(0)

    found = serial_logs.read_tail(host, vm_id="v", max_bytes=100, after=0)

    assert found["end"] == 3


def test_a_log_whose_definition_a_removal_of_another_vm_forgot_is_deleted_all_the_same() -> None:
    host = host_with_a_log_of(3)
    host.lookupByUUIDString = missing
    host.listAllDomains = lambda _: []
    defined, deleted = [], []

    def define(xml: str) -> Any:
        defined.append(xml)
        forgotten = len(defined) == 1
        return SimpleNamespace(
            undefineFlags=missing if forgotten else lambda _: deleted.append(xml), info=lambda: None
        )

    host.defineXML = define
    host.domainListGetStats = lambda domains, *_: [(domains[0], {"block.count": 0})]

    serial_logs.delete_logs(host, "v")

    assert [xml.count("fuga-v.serial<") for xml in deleted[:2]] == [1, 0]
    assert defined[0] == defined[1] == deleted[0]


def missing(_: object) -> None:
    raise ForgottenError
