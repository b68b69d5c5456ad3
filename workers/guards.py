"""Filters that a host applies to a VM's network card."""

from __future__ import annotations

from hypervisor import Guard
from registry.hosts import HostAccess
from registry.networks import CardRules


def guard_of(host: HostAccess, card: CardRules) -> Guard | None:
    """Return the filters; None for libvirt's test driver, which has no network."""
    if host.domain_type == "test":
        return None
    return Guard(
        filtered=card.filtered,
        isolated=card.isolated,
        address=card.address,
        subnet=card.subnet,
        reaches=card.reaches,
    )
