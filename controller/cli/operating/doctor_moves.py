"""`fuga doctor`: whether VMs can move, and what the settings of workers mean for moves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

from controller.cli.operating.doctor_register import Finding

_ABOUT: Final = "moves"
#: libvirt's test driver moves nothing.
_MOVES_NOTHING: Final = "test"


class MoveSettings(Protocol):
    """What is read here of the settings of workers, which this package does not import."""

    moves_per_host: int
    moves_at_once: int
    move_deadline_s: float
    move_bandwidth_mib_s: int | None
    move_encrypt: bool
    move_ports: tuple[int, int]


def move_findings(
    settings: MoveSettings,
    hosts: Sequence[Mapping[str, Any]],
    vm_types: Sequence[Mapping[str, Any]],
) -> Iterator[Finding]:
    """Judge the settings of moves by the hosts and VM types that there are."""
    if settings.moves_at_once < settings.moves_per_host:
        yield Finding(
            _ABOUT,
            False,
            f"FUGA_MOVES_AT_ONCE ({settings.moves_at_once}) is below FUGA_MOVES_PER_HOST"
            f" ({settings.moves_per_host}), which has no effect then",
        )
    yield from _too_slow(settings, vm_types)
    able = [
        host
        for host in hosts
        if host["admin"] != "retired" and host["domain_type"] != _MOVES_NOTHING
    ]
    if len(able) < 2:
        return
    yield Finding(
        _ABOUT,
        True,
        f"{len(able)} hosts exchange VMs, if they reach each other by name or `migration_host`"
        f" on ports {settings.move_ports[0]} to {settings.move_ports[1]}",
    )
    if not settings.move_encrypt:
        yield Finding(
            _ABOUT,
            False,
            "memory and disks cross the network unencrypted (FUGA_MOVE_ENCRYPT): whoever reaches"
            " a destination's ports reads and writes the disk of a VM that moves there. A host"
            " without the label `move_address=`, or `migration_address` in its qemu.conf, listens"
            " on all of its addresses",
        )


def _too_slow(settings: MoveSettings, vm_types: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    """Find VM types whose memory alone takes longer than a move may take."""
    rate = settings.move_bandwidth_mib_s
    if rate is None:
        return
    most = int(rate * settings.move_deadline_s)
    large = [each["name"] for each in vm_types if each["resources"].get("memory_mib", 0) > most]
    if large:
        yield Finding(
            _ABOUT,
            False,
            f"at {rate} MiB/s (FUGA_MOVE_BANDWIDTH_MIB_S) {most} MiB move within"
            f" FUGA_MOVE_DEADLINE_S ({settings.move_deadline_s:g} s): too few for VMs of type"
            f" {', '.join(sorted(large))}",
        )
