"""Disks that QEMU has and libvirt does not know. In the child process only.

If libvirtd is killed while it attaches a disk, QEMU keeps the disk's block nodes, and maybe the
device, while both definitions lack them. The guest may use such a disk, and no other attachment of
its file works. If libvirtd is killed while it detaches a disk, the same may stay.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import libvirt
import libvirt_qemu

from hypervisor.errors import OperationFailedError

_ANSWER_S: Final = 2.0  #: wait for the guest to release a device
_POLL_S: Final = 0.05
#: In a device's path in QEMU's tree: it was made with an id, which is its alias in libvirt.
_PERIPHERAL: Final = "/machine/peripheral/"


def has_file(domain: libvirt.virDomain, is_named: Callable[[str], bool]) -> bool:
    """Return whether QEMU has a file of a name in use; False if the domain is off.

    ``is_named`` receives the paths of all files that QEMU has open.
    """
    return bool(_block_nodes(domain, is_named))


def remove_leftovers(
    operation: str, domain: libvirt.virDomain, is_named: Callable[[str], bool]
) -> bool:
    """Remove a disk that libvirt does not know from QEMU; return whether it is gone.

    Only for a disk that the live definition lacks. False if the guest has not released the device
    yet: its removal is requested.
    """
    if not _block_nodes(domain, is_named):
        return True
    for device in _devices(domain, is_named):
        # Refused if the removal is under way already.
        _execute(domain, "device_del", id=device)
    until = time.monotonic() + _ANSWER_S
    while True:
        waiting = bool(_devices(domain, is_named))
        # A device that the guest has released keeps its nodes in use for a moment.
        refusals = [] if waiting else _delete_nodes(domain, is_named)
        left = _block_nodes(domain, is_named)
        if not left:
            return True
        if time.monotonic() > until:
            break
        time.sleep(_POLL_S)
    if waiting:
        return False
    raise OperationFailedError(
        operation,
        f"QEMU of domain {domain.UUIDString()} keeps the block node {left[0][0]} of an attachment"
        f" that was interrupted: {'; '.join(refusals)}",
    )


def _delete_nodes(domain: libvirt.virDomain, is_named: Callable[[str], bool]) -> list[str]:
    """Delete QEMU's block nodes of files with a name, the upper ones first; return refusals."""
    nodes = sorted(_block_nodes(domain, is_named), key=lambda each: each[1] == "file")
    answers = [_execute(domain, "blockdev-del", **{"node-name": node}) for node, _ in nodes]
    return [answer["error"]["desc"] for answer in answers if "error" in answer]


def _block_nodes(
    domain: libvirt.virDomain, is_named: Callable[[str], bool]
) -> list[tuple[str, str]]:
    """Return QEMU's block nodes of files with a name, each with its driver."""
    nodes = _execute(domain, "query-named-block-nodes", flat=True).get("return", ())
    return [
        (node["node-name"], node.get("drv", "")) for node in nodes if is_named(node.get("file", ""))
    ]


def _devices(domain: libvirt.virDomain, is_named: Callable[[str], bool]) -> list[str]:
    """Return the ids of QEMU's disk devices with a file of a name."""
    found = _execute(domain, "query-block").get("return", ())
    return [
        str(each["qdev"]).removeprefix(_PERIPHERAL).partition("/")[0]
        for each in found
        if str(each.get("qdev", "")).startswith(_PERIPHERAL)
        and is_named(each.get("inserted", {}).get("file", ""))
    ]


def _execute(domain: libvirt.virDomain, command: str, **arguments: object) -> Mapping[str, Any]:
    """Return QEMU's answer to a command of its monitor, an error or empty if it is off."""
    request = {"execute": command, **({"arguments": arguments} if arguments else {})}
    try:
        answer = libvirt_qemu.qemuMonitorCommand(domain, json.dumps(request), 0)
    except libvirt.libvirtError as error:
        if error.get_error_code() != libvirt.VIR_ERR_OPERATION_INVALID:
            raise
        return {}  # it went off
    found = json.loads(answer)
    return found if isinstance(found, dict) else {}
