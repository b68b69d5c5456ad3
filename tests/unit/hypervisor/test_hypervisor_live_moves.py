"""How a live move is led, with libvirt's objects in memory."""

from __future__ import annotations

import threading
import uuid
from dataclasses import replace
from typing import Any

import libvirt
import pytest

from hypervisor import Mark, MoveHangsError, MoveSpec
from hypervisor.child import live_moves

VM = str(uuid.uuid4())
SPEC = MoveSpec(
    vm_id=VM,
    mark=Mark(vm_id=VM, assignment_id="new", generation=2, tenant="a", round=7),
    pool="default",
    volume="b.qcow2",
    seed_volume=None,
    network="default",
)


class RefusedError(libvirt.libvirtError):
    """What libvirt says, with a code of its own."""

    def __init__(self, code: int, says: str) -> None:
        Exception.__init__(self, says)
        self._code = code

    def get_error_code(self) -> int:
        return self._code


class Volume:
    def path(self) -> str:
        return "/images/b.qcow2"

    def XMLDesc(self, _: int) -> str:  # noqa: N802
        return "<volume/>"


class Host:
    """Both hosts in one: a connection, its pool, and its domain."""

    def __init__(self, *, refuses: int, while_it_has: str) -> None:
        self.for_move = self.for_queries = self
        self.uri = "test"
        self.resumed = 0
        self.says = "refused"
        self.asked: list[tuple[dict[str, Any], int]] = []
        self._refuses, self._while_it_has = refuses, while_it_has
        self._keeps_shares = True

    def may_have_cpu_shares(self) -> bool:
        return self._keeps_shares

    def record_shares_refused(self) -> None:
        self._keeps_shares = False

    def is_alive(self) -> bool:
        return True

    def lookupByUUIDString(self, _: str) -> Host:  # noqa: N802
        return self

    def storagePoolLookupByName(self, _: str) -> Host:  # noqa: N802
        return self

    def storageVolLookupByName(self, _: str) -> Volume:  # noqa: N802
        return Volume()

    def XMLDesc(self, _: int) -> str:  # noqa: N802
        return "<domain><vcpu>2</vcpu><devices/></domain>"

    def isActive(self) -> int:  # noqa: N802
        return 1

    def state(self) -> list[int]:
        return [libvirt.VIR_DOMAIN_RUNNING if self.resumed else libvirt.VIR_DOMAIN_PAUSED, 1]

    def resume(self) -> None:
        self.resumed += 1

    def jobStats(self, _: int = 0) -> dict[str, Any]:  # noqa: N802
        return {}

    def migrate3(self, _: Host, parameters: dict[str, Any], flags: int) -> None:
        self.asked.append((parameters, flags))
        if self._while_it_has in parameters[libvirt.VIR_MIGRATE_PARAM_DEST_XML]:
            raise RefusedError(self._refuses, self.says)


class MoveHosts:
    def __init__(self, host: Host) -> None:
        self.source = self.destination = host


def move(host: Host, spec: MoveSpec = SPEC) -> None:
    ends: Any = MoveHosts(host)
    live_moves.move_running_vm(ends, spec, threading.Event(), lambda _: None)


def test_a_host_that_keeps_no_shares_gets_the_guest_without() -> None:
    host = Host(refuses=libvirt.VIR_ERR_CONFIG_UNSUPPORTED, while_it_has="<shares>")

    move(host)

    first, second = (parameters[libvirt.VIR_MIGRATE_PARAM_DEST_XML] for parameters, _ in host.asked)
    assert "<shares>64</shares>" in first
    assert "<shares>" not in second
    assert "<shares>" not in host.asked[1][0][libvirt.VIR_MIGRATE_PARAM_PERSIST_XML]
    # The next guest is not refused first.
    move(host)
    assert len(host.asked) == 3


@pytest.mark.parametrize(
    ("code", "word", "attempts"),
    [
        (libvirt.VIR_ERR_CONFIG_UNSUPPORTED, "<devices", 2),  # refused without shares as well
        (libvirt.VIR_ERR_OPERATION_FAILED, "<shares>", 1),
    ],
)
def test_another_refusal_is_not_asked_about_again(code: int, word: str, attempts: int) -> None:
    host = Host(refuses=code, while_it_has=word)

    with pytest.raises(libvirt.libvirtError):
        move(host)

    assert len(host.asked) == attempts


def test_a_guest_runs_at_the_destination_only_when_the_source_has_nothing_of_it() -> None:
    arrived = Host(refuses=0, while_it_has="nothing of the kind")
    refused = Host(refuses=libvirt.VIR_ERR_OPERATION_FAILED, while_it_has="<shares>")

    move(arrived)
    with pytest.raises(libvirt.libvirtError):
        move(refused)

    assert arrived.asked[0][1] & libvirt.VIR_MIGRATE_PAUSED
    assert (arrived.resumed, refused.resumed) == (1, 0)


def test_options_become_flags_and_parameters() -> None:
    host = Host(refuses=0, while_it_has="nothing of the kind")
    plain = replace(SPEC, encrypt=False)
    rich = MoveSpec(
        vm_id=VM,
        mark=SPEC.mark,
        pool="default",
        volume="b.qcow2",
        seed_volume=None,
        network="default",
        bandwidth_mib_s=8,
        auto_converge=True,
        address="2001:db8::7",
    )

    move(host, plain)
    move(host, rich)

    (plainly, plain_flags), (richly, rich_flags) = host.asked
    always = (
        libvirt.VIR_MIGRATE_LIVE
        | libvirt.VIR_MIGRATE_PERSIST_DEST
        | libvirt.VIR_MIGRATE_UNDEFINE_SOURCE
        | libvirt.VIR_MIGRATE_ABORT_ON_ERROR
        | libvirt.VIR_MIGRATE_PAUSED
    )
    assert plain_flags == (always | libvirt.VIR_MIGRATE_NON_SHARED_INC)
    assert libvirt.VIR_MIGRATE_PARAM_BANDWIDTH not in plainly
    assert libvirt.VIR_MIGRATE_PARAM_URI not in plainly
    assert rich_flags == (
        always
        | libvirt.VIR_MIGRATE_NON_SHARED_INC
        | libvirt.VIR_MIGRATE_AUTO_CONVERGE
        | libvirt.VIR_MIGRATE_TLS
    )
    assert richly[libvirt.VIR_MIGRATE_PARAM_BANDWIDTH] == 8
    assert richly[libvirt.VIR_MIGRATE_PARAM_URI].startswith("tcp://[2001:db8::7]:")
    assert richly[libvirt.VIR_MIGRATE_PARAM_LISTEN_ADDRESS] == "2001:db8::7"


def test_each_attempt_receives_at_other_ports_of_the_range() -> None:
    first, last = 50000, 50003
    spec = replace(SPEC, address="kvm-7.example", ports=(first, last))
    seen = set()

    for _ in range(50):
        found = live_moves._destination_parameters(spec)
        memory = int(found[libvirt.VIR_MIGRATE_PARAM_URI].removeprefix("tcp://kvm-7.example:"))
        seen.add((memory, found[libvirt.VIR_MIGRATE_PARAM_DISKS_PORT]))
        # The name may be a loopback's address at the destination.
        assert libvirt.VIR_MIGRATE_PARAM_LISTEN_ADDRESS not in found

    assert all(first <= port <= last for pair in seen for port in pair)
    assert all(memory != disks for memory, disks in seen)
    assert len(seen) > 3


@pytest.mark.parametrize(
    "says", ["Failed to bind socket: Address already in use", "Failed to reserve port 49192"]
)
def test_a_port_that_is_taken_is_replaced_by_another(says: str) -> None:
    host = Host(refuses=libvirt.VIR_ERR_INTERNAL_ERROR, while_it_has="<domain")
    host.says = says

    with pytest.raises(libvirt.libvirtError, match=says):
        move(host)

    ports = {parameters[libvirt.VIR_MIGRATE_PARAM_DISKS_PORT] for parameters, _ in host.asked}
    assert len(ports) > 1


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("state", "begun", "waits_s"),
    [
        ((libvirt.VIR_DOMAIN_RUNNING, 1), False, 30),
        ((libvirt.VIR_DOMAIN_RUNNING, 1), True, 30),
        ((libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_MIGRATION), True, 10),
        ((libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_USER), True, 30),
    ],
)
def test_a_move_of_which_nothing_flows_hangs(
    monkeypatch: pytest.MonkeyPatch, state: tuple[int, int], begun: bool, waits_s: float
) -> None:
    clock, guest = Clock(), Host(refuses=0, while_it_has="nothing of the kind")
    monkeypatch.setattr(live_moves, "time", clock)
    monkeypatch.setattr(guest, "state", lambda: list(state))
    pace = live_moves._HangDetector(SPEC)
    progress = live_moves._read_progress(
        {"memory_total": 100, "memory_remaining": 70} if begun else {}
    )

    clock.now = 25.0
    pace.check(progress, guest)  # it flows, or is begun
    clock.now += waits_s - 1
    pace.check(progress, guest)
    clock.now += 2

    with pytest.raises(MoveHangsError, match="49152 to 49215") as raised:
        pace.check(progress, guest)
    assert raised.value.begun is begun


def test_a_shared_disk_is_not_copied() -> None:
    flags = live_moves._migration_flags(replace(SPEC, copy_disk=False))

    assert flags & libvirt.VIR_MIGRATE_UNSAFE
    assert not flags & libvirt.VIR_MIGRATE_NON_SHARED_INC
