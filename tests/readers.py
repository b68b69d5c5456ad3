"""Who reads what is told: operators by hosts' names, tenants by names of their own."""

from __future__ import annotations

from controller.host_aliases import HostNames, Viewer
from registry import Registry


def an_operator(registry: Registry) -> Viewer:
    return Viewer(None, HostNames.of(registry))


def a_tenant(registry: Registry, name: str = "a") -> Viewer:
    return Viewer(name, HostNames.of(registry))
