"""Progressive filling in order of service, with any rule that chooses hosts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from placement.fairness.service_order import service_order_of_vms
from placement.model.vm_kinds import VmKinds, max_vms_per_request
from placement.packing.draft import Draft


class HostRule(Protocol):
    """Chooses hosts for VMs, one after another, and keeps count of their room."""

    def fill(self, order: Sequence[int]) -> Sequence[int]:
        """Return the host of each VM, given its kind, up to the first that fits nowhere."""
        ...


def fill_in_turn(draft: Draft, kinds: VmKinds, rule: Callable[[], HostRule]) -> None:
    """Place what remains in ``draft`` by progressive filling, within the room of the draft.

    Parameters
    ----------
    draft : Draft
        Changed in place.
    kinds : VmKinds
        Of the draft's snapshot.
    rule : callable
        Makes the rule that chooses hosts, once, on the draft as it is.

    Notes
    -----
    Repeats: the tenant of least dominant share per weight takes one VM of its
    first request that still fits somewhere. Ties go to the tenant whose request
    comes first. A request that fits nowhere leaves the round; its tenant goes
    on with the next (Wang, Li, Liang, INFOCOM 2014, section V-B).

    The order of service does not depend on where VMs go until one fits nowhere. Then
    nothing of its kind does any more; the order stays as it is for tenants that
    wait for nothing else, and is made again where others move up.
    """
    snapshot = draft.snapshot
    remaining = np.minimum(draft.remaining, max_vms_per_request(snapshot, draft.room, kinds))
    if not remaining.any():
        return
    hosts_of = rule()
    order = service_order_of_vms(snapshot, remaining, draft.held)
    while len(order):
        of_kind = kinds.of_request[order]
        hosts = np.asarray(hosts_of.fill(of_kind.tolist()), dtype=np.int64)
        served, order, of_kind = order[: len(hosts)], order[len(hosts) :], of_kind[len(hosts) :]
        draft.put_all(np.stack([served, hosts, np.ones_like(served)], axis=1))
        if not len(order):
            return
        np.subtract.at(remaining, served, 1)
        full = kinds.of_request == of_kind[0]
        waits = remaining > 0
        remaining[full] = 0
        if np.isin(snapshot.tenant[waits & ~full], snapshot.tenant[waits & full]).any():
            order = service_order_of_vms(snapshot, remaining, draft.held)
        else:
            order = order[~full[order]]
