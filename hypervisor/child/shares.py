"""Whether a host shares processors out. In the child processes only."""

from __future__ import annotations

import libvirt


def are_kept(conn: libvirt.virConnect) -> bool | None:
    """Ask about a guest that runs: cgroups without the processors' controller refuse shares.

    None: no guest runs, or it does not say.
    """
    for domain in conn.listAllDomains(libvirt.VIR_CONNECT_LIST_DOMAINS_ACTIVE)[:1]:
        try:
            domain.schedulerType()
        except libvirt.libvirtError as error:
            return False if error.get_error_code() == libvirt.VIR_ERR_OPERATION_INVALID else None
        else:
            return True
    return None
