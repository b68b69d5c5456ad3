"""`fuga host check`: whether what a host says of itself is good for VMs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from controller.cli.doctor.check_result import CheckResult
from controller.cli.doctor.hosts import confinement_findings, exposure_findings

#: With which fuga is tested; see docs/development.md.
_TESTED_LIBVIRT: Final = 9_000_000
_TESTED_QEMU: Final = 7_002_000
_GIB: Final = 1 << 30
_LITTLE_FREE: Final = 0.1
#: A clock this far off breaks certificates and the order of logs long before anything else.
_CLOCK_S: Final = 5.0
_UNIT: Final = 1_000_000


def host_findings(
    target: Mapping[str, Any], seen: Mapping[str, Any], registered: Sequence[Mapping[str, Any]]
) -> Iterator[CheckResult]:
    """Judge the results of `python -m monitor.preflight` for a host."""
    if fault := seen.get("credential_fault"):
        yield CheckResult("credential", False, fault)
        return
    if fault := seen.get("unreachable") or seen.get("host_fault"):
        yield CheckResult("libvirt", False, fault)
        return
    host = seen["host"]
    yield from _version_findings(host)
    yield from _emulation_findings(target, host)
    yield from _cpu_findings(seen)
    yield from _confinement_findings(target, host)
    yield from _pool_findings(target, seen)
    yield from _clock_findings(seen)
    yield from _network_findings(target, host)
    yield from _machine_findings(target, host, registered)
    yield from exposure_findings([{**target, "admin": "active"}])


def _version_findings(host: Mapping[str, Any]) -> Iterator[CheckResult]:
    """Check the driver, and the versions of libvirt and QEMU."""
    if host["driver"] != "QEMU":
        why = f"its driver is {host['driver']}, not QEMU: it runs no VMs"
        yield CheckResult("libvirt", False, why)
        return
    for about, found, tested in (
        ("libvirt", host["libvirt_version"], _TESTED_LIBVIRT),
        ("QEMU", host["qemu_version"], _TESTED_QEMU),
    ):
        version = _version_text(found)
        if found < tested:
            why = f"{version} is older than {_version_text(tested)}, with which fuga is tested"
            yield CheckResult(about, True, f"{why}: upgrade it", note=True)
        else:
            yield CheckResult(about, True, version)


def _version_text(number: int) -> str:
    return f"{number // _UNIT}.{number // 1000 % 1000}.{number % 1000}"


def _emulation_findings(
    target: Mapping[str, Any], host: Mapping[str, Any]
) -> Iterator[CheckResult]:
    """Check that the host runs guests of its domain type: KVM, or emulated ones."""
    kind = target.get("domain_type", "kvm")
    if host["driver"] != "QEMU":
        return
    if kind not in host["domain_types"]:
        offered = ", ".join(host["domain_types"]) or "none"
        remedy = "turn on virtualization in the firmware and load kvm_intel or kvm_amd"
        if kind != "kvm":
            remedy = "install qemu-system-x86"
        message = f"no {kind} guests of x86_64, only: {offered}; {remedy}"
        yield CheckResult("KVM", False, message)
    elif kind == "kvm":
        yield CheckResult("KVM", True, "available")
    else:
        message = "guests are emulated (TCG), which is slow: for labs"
        yield CheckResult("KVM", True, message, note=True)


def _cpu_findings(seen: Mapping[str, Any]) -> Iterator[CheckResult]:
    """Check that VMs of other hosts can move here while they run, by CPU models."""
    about = "CPU model"
    model = seen["host"]["processor_model"] or "not reported"
    compared = seen.get("processors")
    if compared is None:
        if fault := seen.get("processors_fault"):
            yield CheckResult(about, True, f"{model}; not compared: {fault}", note=True)
        else:
            message = f"{model}; no other host was there to compare with"
            yield CheckResult(about, True, message)
    elif compared["faults"]:
        baseline = compared["baseline"] or "none"
        for name, fault in sorted(compared["faults"].items()):
            message = (
                f"{model}; VMs of {name} cannot move here while they run ({fault}); common"
                f" baseline: {baseline}. Give hosts of one kind a label, and requests that label"
            )
            yield CheckResult(about, True, message, note=True)
    else:
        names = ", ".join(compared["others"])
        message = f"{model}; takes running VMs of {names}; baseline {compared['baseline']}"
        yield CheckResult(about, True, message)
    for name, fault in sorted((seen.get("others_unread") or {}).items()):
        yield CheckResult(about, True, f"not compared with {name}: {fault}", note=True)


def _confinement_findings(
    target: Mapping[str, Any], host: Mapping[str, Any]
) -> Iterator[CheckResult]:
    """Check confinement by the rules of `fuga doctor`, and whether libvirt can filter packets."""
    fields = {
        "name": target["name"],
        "admin": "active",
        "domain_type": target.get("domain_type", "kvm"),
        "security_model": host["security_model"],
    }
    for each in confinement_findings([fields]):
        if each.about == "confinement":
            if host["security_model"] != "none":
                yield CheckResult(
                    "confinement", True, f"guests are confined by {host['security_model']}"
                )
        else:
            yield CheckResult("confinement", each.well, each.message, each.note)
    if host["can_filter"] is False:
        why = "libvirt has no network filters (nwfilter): no VM is created there; install"
        yield CheckResult("filters", False, f"{why} libvirt-daemon-config-nwfilter, and ebtables")
    elif host["can_filter"]:
        yield CheckResult("filters", True, "libvirt has network filters")


def _pool_findings(target: Mapping[str, Any], seen: Mapping[str, Any]) -> Iterator[CheckResult]:
    """Check that the storage pool is active, starts at boot and has room."""
    name = target.get("pool", "default")
    about = f"pool {name}"
    if fault := seen.get("pool_fault"):
        remedy = f"on the host: virsh pool-list --all --details; virsh pool-refresh {name}"
        yield CheckResult(about, False, f"{fault}; {remedy}")
        return
    pool = seen["pool"]
    if not pool["active"]:
        yield CheckResult(about, False, f"not active; on the host: virsh pool-start {name}")
        return
    free, capacity = pool["free_bytes"] / _GIB, pool["capacity_bytes"] / _GIB
    room = f"{pool['kind']}, {free:.0f} of {capacity:.0f} GiB free"
    if not pool["starts_by_itself"]:
        remedy = f"after a reboot VMs do not start; on the host: virsh pool-autostart {name}"
        yield CheckResult(about, False, f"{room}; does not start by itself: {remedy}")
    elif pool["free_bytes"] < _LITTLE_FREE * pool["capacity_bytes"]:
        yield CheckResult(about, True, f"{room}: nearly full", note=True)
    else:
        yield CheckResult(about, True, room)


def _clock_findings(seen: Mapping[str, Any]) -> Iterator[CheckResult]:
    """Compare the host's clock with that of this machine."""
    ahead_s = (seen.get("pool") or {}).get("clock_ahead_s")
    if ahead_s is None:
        message = (
            "not visible from here (the pool has no files of the host); on the host: timedatectl"
        )
        yield CheckResult("clock", True, message, note=True)
    elif abs(ahead_s) > _CLOCK_S:
        side = "ahead of" if ahead_s > 0 else "behind"
        message = f"{abs(ahead_s):.0f} s {side} this machine's: let chrony or timesyncd run on both"
        yield CheckResult("clock", False, message)
    else:
        yield CheckResult("clock", True, f"within {_CLOCK_S:g} s of this machine's")


def _network_findings(target: Mapping[str, Any], host: Mapping[str, Any]) -> Iterator[CheckResult]:
    """Check that the default network is active, starts at boot and is filtered."""
    name = target.get("network", "default")
    about, fault = f"network {name}", host["network_fault"]
    if fault == "unsupported":
        yield CheckResult(about, True, "libvirt lists no networks there", note=True)
    elif fault == "missing":
        remedy = "on the host: virsh net-define FILE, or name another: --network NAME"
        yield CheckResult(about, False, f"no such network of libvirt's; {remedy}")
    elif fault == "inactive":
        yield CheckResult(about, False, f"not active; on the host: virsh net-start {name}")
    elif fault is not None:
        message = f"interfaces are not filtered there, so that no VM is created: {fault}"
        yield CheckResult(about, False, message)
    elif host["network_starts_by_itself"] is False:
        remedy = f"on the host: virsh net-autostart {name}"
        yield CheckResult(about, False, f"active, but does not start by itself: {remedy}")
    else:
        yield CheckResult(about, True, "active")


def _machine_findings(
    target: Mapping[str, Any], host: Mapping[str, Any], registered: Sequence[Mapping[str, Any]]
) -> Iterator[CheckResult]:
    """Check by its UUID that the machine is not registered under another name."""
    found = host["machine_uuid"]
    if found is None:
        message = "libvirt reports no UUID: two names of one machine are not noticed"
        yield CheckResult("machine", True, message, note=True)
        return
    same = [
        str(each["name"])
        for each in registered
        if each.get("machine_uuid") == found
        and each["name"] != target["name"]
        and each["admin"] != "retired"
    ]
    if same:
        message = (
            f"{found} is registered as host {', '.join(same)}: a second name of a machine gets no"
            " VMs. If two machines report one UUID, set host_uuid in libvirtd.conf of one"
        )
        yield CheckResult("machine", False, message)
        return
    own = next((each for each in registered if each["name"] == target["name"]), None)
    if own is not None and own.get("machine_uuid") not in {None, found}:
        message = (
            f"{found} answers, and the host's own is {own['machine_uuid']}: fuga doctor --hosts"
            " says what to do"
        )
        yield CheckResult("machine", False, message)
    else:
        yield CheckResult("machine", True, f"{found}, {host['hostname']}")
