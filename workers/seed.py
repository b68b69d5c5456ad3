"""The cloud-init seed of a guest, which the NoCloud data source reads at the first boot.

A small volume labelled `cidata` with three files. They are written as JSON, a subset of YAML with
unambiguous quoting, one value per line.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from registry.networks import GuestNetwork
from registry.tasks import Build
from workers import vfat

LABEL: Final = "cidata"
_NO_USER_DATA: Final = b"#cloud-config\n{}\n"
_HOSTNAME_LENGTH: Final = 63
_NUMBER: Final = re.compile(r"-\d+$")


def reads_seed(build: Build) -> bool:
    """Return whether the image of a build's guest reads a seed."""
    if build.host.domain_type == "test":
        return False  # the test driver takes no uploads
    if build.image is not None:
        return build.image.seed_kind == "nocloud"
    return build.host.base_volume is not None


def seed_content(build: Build) -> bytes:
    """Return the content of the cloud-init seed volume for a build."""
    meta_data = {
        # cloud-init runs once per instance id: a rebuilt VM is a new instance.
        "instance-id": f"{build.vm_id}-{build.disk_generation}",
        "local-hostname": build.hostname or guest_hostname(build.vm_name),
        "public-keys": list(build.access.ssh_keys),
    }
    return vfat.vfat_volume(
        LABEL,
        {
            "meta-data": _yaml_document(meta_data),
            "user-data": build.access.user_data or _NO_USER_DATA,
            "network-config": _yaml_document(_network_config(build.network)),
        },
    )


def guest_hostname(vm_name: str) -> str:
    """Convert a VM's name to a host name of at most 63 letters, digits and hyphens."""
    name = re.sub(r"[^a-z0-9-]+", "-", vm_name.lower()).strip("-")
    if len(name) > _HOSTNAME_LENGTH:
        # The number at the end distinguishes it from the other VMs of its request.
        found = _NUMBER.search(name)
        number = found[0] if found else ""
        name = name[: _HOSTNAME_LENGTH - len(number)].rstrip("-") + number
    return name or "vm"


def _network_config(network: GuestNetwork | None) -> dict[str, Any]:
    """Return cloud-init's network configuration for a guest: its address, or DHCP."""
    mac = network.mac if network is not None else None
    interface: dict[str, Any] = {"match": {"name": "e*"} if mac is None else {"macaddress": mac}}
    if network is None or network.address is None:
        interface["dhcp4"] = True
    else:
        interface["addresses"] = [network.address]
        if network.gateway is not None:
            interface["routes"] = [{"to": "0.0.0.0/0", "via": network.gateway}]
        if network.dns:
            interface["nameservers"] = {"addresses": list(network.dns)}
    return {"version": 2, "ethernets": {"nic0": interface}}


def _yaml_document(values: dict[str, Any]) -> bytes:
    """Return values as a YAML document for cloud-init, written as JSON."""
    return json.dumps(values, indent=1, ensure_ascii=False).encode() + b"\n"
