"""What `fuga doctor` finds about hosts: what confines their guests, and who reaches them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from controller.cli.operating.doctor_register import Finding
from controller.cli.operating.encryption import is_local

_UNSEEN: Final = (
    "libvirt does not report whether QEMU runs in its sandbox: set seccomp_sandbox in a host's"
    " qemu.conf to 1, or leave it out"
)


def confinement(hosts: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    """Judge what keeps guests from their hosts and from one another, where a host has told."""
    told = [host for host in hosts if host.get("security_model") and host["admin"] != "retired"]
    for host in told:
        if host["security_model"] == "none":
            yield Finding(
                f"host {host['name']}",
                # Emulated guests are those of a lab: no tenant's work is on them.
                host["domain_type"] != "kvm",
                "nothing confines its guests: its libvirt has neither AppArmor nor SELinux",
                note=True,
            )
        if host.get("shares_kept") is False:
            yield Finding(
                f"host {host['name']}",
                True,
                "processor time is not shared by vCPUs: no cgroup",
                note=True,
            )
    models = Counter(str(host["security_model"]) for host in told)
    shown = ", ".join(f"{model} on {count}" for model, count in sorted(models.items()))
    if told:
        yield Finding("confinement", True, f"security models of hosts: {shown}; {_UNSEEN}")


def openness(
    hosts: Sequence[Mapping[str, Any]], lab_uris: Collection[str] = ()
) -> Iterator[Finding]:
    """Judge whether others reach a host's libvirt; what `fuga up` started is of this machine."""
    from registry.hosts import OPEN_DANGER, is_open  # noqa: PLC0415 - slow; `--help` needs none

    for host in hosts:
        uri = str(host.get("uri", ""))
        if host["admin"] == "retired" or not is_open(uri):
            continue
        about = f"host {host['name']}"
        if is_local(urlsplit(uri).hostname) or uri in lab_uris:
            yield Finding(about, True, "plain TCP, which does not leave this machine")
        else:
            yield Finding(
                about, False, f"plain TCP: {OPEN_DANGER}; let its libvirtd listen by TLS or SSH"
            )
