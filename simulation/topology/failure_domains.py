"""Hosts that fail together, as `--spare` names them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from placement import IntArray
from simulation.topology.hosts import SimHost


def failure_domains_of(spare: str, hosts: Sequence[SimHost]) -> IntArray:
    """Return the failure domain of each simulated host, (H,), numbered by name; -1 for none.

    Parameters
    ----------
    spare : str
        ``host``, or the key of a label, before its ``=``: ``zone``, ``rack``.
    """
    if spare == "host":
        return np.arange(len(hosts), dtype=np.int64)
    values = [_domain_value(spare, host.labels) for host in hosts]
    number = {value: place for place, value in enumerate(sorted({*filter(None, values)}))}
    return np.array([number.get(value or "", -1) for value in values], dtype=np.int64)


def _domain_value(name: str, labels: Sequence[str]) -> str | None:
    """Return the value of a label ``NAME=VALUE`` among a host's labels, or None."""
    return next((each[len(name) + 1 :] for each in labels if each.startswith(f"{name}=")), None)
