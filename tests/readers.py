"""Who reads what is told: operators by hosts' names, tenants by names of their own."""

from __future__ import annotations

from controller.host_aliases import HostNames, Reader
from registry import Registry


def an_operator(registry: Registry) -> Reader:
    return Reader(None, HostNames.of(registry))


def a_tenant(registry: Registry, name: str = "a") -> Reader:
    return Reader(name, HostNames.of(registry))
