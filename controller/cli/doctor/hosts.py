"""What `fuga doctor` finds about hosts: why they get no VMs, confinement, exposure, moves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import urlsplit

from controller.cli.doctor.check_result import CheckResult
from controller.cli.doctor.encryption import is_local
from controller.session.host_texts import health_text
from controller.terminal.name_lists import first_names

if TYPE_CHECKING:
    from registry.hosts import FailurePolicy


_ABOUT: Final = "moves"
#: libvirt's test driver moves nothing.
_MOVES_NOTHING: Final = "test"
_NO_ERROR: Final = "no error recorded; check that the monitor runs"


class MoveSettings(Protocol):
    """The workers' settings that are read here; this package does not import `workers`."""

    moves_per_host: int
    moves_at_once: int
    move_deadline_s: float
    move_bandwidth_mib_s: int | None
    move_encrypt: bool
    move_ports: tuple[int, int]


def host_exclusion_reason(host: Mapping[str, Any]) -> str | None:
    """Return the reason why an active host gets no VMs, or None."""
    if host["admin"] != "active":
        return None
    if host.get("same_machine_as"):
        return str(host["last_error"] or f"it is the machine of host {host['same_machine_as']}")
    if host["health"] != "up":
        return f"{health_text(host)}: {host['last_error'] or _NO_ERROR}"
    if host.get("pool_silent_since"):
        return f"{host['last_error']}: it is up but gets no VMs"
    return None


def move_findings(
    settings: MoveSettings,
    hosts: Sequence[Mapping[str, Any]],
    vm_types: Sequence[Mapping[str, Any]],
) -> Iterator[CheckResult]:
    """Check the settings of moves against the existing hosts and VM types."""
    if settings.moves_at_once < settings.moves_per_host:
        yield CheckResult(
            _ABOUT,
            False,
            f"FUGA_MOVES_AT_ONCE ({settings.moves_at_once}) is below FUGA_MOVES_PER_HOST"
            f" ({settings.moves_per_host}), which has no effect then",
        )
    yield from _slow_vm_type_findings(settings, vm_types)
    able = [
        host
        for host in hosts
        if host["admin"] != "retired"
        and host["domain_type"] != _MOVES_NOTHING
        and host.get("same_machine_as") is None
    ]
    if len(able) < 2:
        return
    yield CheckResult(
        _ABOUT,
        True,
        f"{len(able)} hosts exchange VMs, if they reach each other by name or `migration_host`"
        f" on ports {settings.move_ports[0]} to {settings.move_ports[1]}",
    )
    if not settings.move_encrypt:
        yield CheckResult(
            _ABOUT,
            False,
            "memory and disks cross the network unencrypted (FUGA_MOVE_ENCRYPT): anyone who reaches"
            " a destination's ports reads and writes the disk of a VM that moves there. A host"
            " without the label `move_address=`, or `migration_address` in its qemu.conf, listens"
            " on all of its addresses",
        )


def _slow_vm_type_findings(
    settings: MoveSettings, vm_types: Sequence[Mapping[str, Any]]
) -> Iterator[CheckResult]:
    """Find VM types whose memory takes longer to send than the time limit of a move."""
    rate = settings.move_bandwidth_mib_s
    if rate is None:
        return
    max_mib = int(rate * settings.move_deadline_s)
    large = [each["name"] for each in vm_types if each["resources"].get("memory_mib", 0) > max_mib]
    if large:
        yield CheckResult(
            _ABOUT,
            False,
            f"at {rate} MiB/s (FUGA_MOVE_BANDWIDTH_MIB_S) {max_mib} MiB move within"
            f" FUGA_MOVE_DEADLINE_S ({settings.move_deadline_s:g} s): too few for VMs of type"
            f" {', '.join(sorted(large))}",
        )


_NAMED: Final = 5


def failure_findings(
    hosts: Sequence[Mapping[str, Any]], by_default: FailurePolicy
) -> Iterator[CheckResult]:
    """Find failed hosts whose VMs wait because their disks exist only there."""
    # Slow; `--help` needs none of it.
    from registry.hosts import FailurePolicy, failure_policy_of, shared_pool_of  # noqa: PLC0415

    waits = [
        host["name"]
        for host in hosts
        if host["admin"] != "retired"
        and failure_policy_of(host["labels"], by_default=by_default) is FailurePolicy.REPLACE
        and shared_pool_of(host["labels"]) is None
    ]
    if not waits:
        return
    yield CheckResult(
        "failures",
        False,
        f"on_failure=replace moves nothing from {first_names(waits, _NAMED)}: without a shared"
        " pool (label shared_pool=NAME) VMs wait for their host. Label them on_failure=wait, or"
        " on_failure=rebuild, which loses what VMs had written",
    )


_UNSEEN: Final = (
    "libvirt does not report whether QEMU runs in its sandbox: set seccomp_sandbox in a host's"
    " qemu.conf to 1, or leave it out"
)


def confinement_findings(hosts: Sequence[Mapping[str, Any]]) -> Iterator[CheckResult]:
    """Check that hosts confine guests (AppArmor, SELinux) and share CPU time by cgroups."""
    checked = [host for host in hosts if host.get("security_model") and host["admin"] != "retired"]
    for host in checked:
        if host["security_model"] == "none":
            yield CheckResult(
                f"host {host['name']}",
                # Emulated guests are those of a lab: no tenant's work is on them.
                host["domain_type"] != "kvm",
                "nothing confines its guests: its libvirt has neither AppArmor nor SELinux",
                note=True,
            )
        if host.get("shares_kept") is False:
            yield CheckResult(
                f"host {host['name']}",
                True,
                "processor time is not shared by vCPUs: no cgroup",
                note=True,
            )
    models = Counter(str(host["security_model"]) for host in checked)
    shown = ", ".join(f"{model} on {count}" for model, count in sorted(models.items()))
    if checked:
        yield CheckResult("confinement", True, f"security models of hosts: {shown}; {_UNSEEN}")


def exposure_findings(
    hosts: Sequence[Mapping[str, Any]], lab_uris: Collection[str] = ()
) -> Iterator[CheckResult]:
    """Find hosts whose libvirt accepts plain TCP without protection."""
    from registry.hosts import OPEN_DANGER, is_unprotected  # noqa: PLC0415 - slow; `--help` needs none

    for host in hosts:
        uri = str(host.get("uri", ""))
        if host["admin"] == "retired" or not is_unprotected(uri):
            continue
        about = f"host {host['name']}"
        if is_local(urlsplit(uri).hostname) or uri in lab_uris:
            yield CheckResult(about, True, "plain TCP, which does not leave this machine")
        else:
            yield CheckResult(
                about, False, f"plain TCP: {OPEN_DANGER}; let its libvirtd listen by TLS or SSH"
            )
