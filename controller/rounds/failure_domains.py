"""Failure domains: sets of hosts that fail together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from placement import IntArray
from registry.requests import zone_of
from registry.rounds import HostView


@dataclass(frozen=True, slots=True, eq=False)
class FailureDomains:
    """The failure domain of each host."""

    of_host: IntArray  #: (H,) an index of ``names``, -1 for none
    names: tuple[str, ...]  #: a host's, a zone's or a label's value


def failure_domains_of(kind: str, hosts: Sequence[HostView]) -> FailureDomains:
    """Return the failure domains of hosts by ``host``, ``zone`` or ``label:KEY``.

    Hosts without a zone, or without the label, belong to no domain. They can take the VMs of a
    failed domain.
    """
    if kind == "host":
        return FailureDomains(np.arange(len(hosts)), tuple(host.name for host in hosts))
    values = [_domain_name(kind, host.labels) for host in hosts]
    names = tuple(sorted({each for each in values if each is not None}))
    index = {name: at for at, name in enumerate(names)}
    of_host = np.array([-1 if each is None else index[each] for each in values], dtype=np.int64)
    return FailureDomains(of_host, names)


def _domain_name(kind: str, labels: Sequence[str]) -> str | None:
    """Return the name of a host's failure domain by its labels; None: it is in none."""
    if kind == "zone":
        return zone_of(labels)
    key = f"{kind.removeprefix('label:')}="
    return next((label.removeprefix(key) for label in labels if label.startswith(key)), None)
