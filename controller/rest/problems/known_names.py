"""Names to suggest in error messages: only names that the caller may see."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import structlog

from controller.host_aliases import HostNames, Viewer
from controller.rest.middleware.callers import Caller
from registry import Registry, RegistryError

#: Names of one kind that are considered: one page of a list.
_MAX_NAMES: Final = 500

log = structlog.get_logger(__name__)


class KnownNames:
    """Reads the names that lists show to the caller."""

    def __init__(self, registry: Registry, host_names: HostNames, caller: Caller) -> None:
        self._registry = registry
        self._caller = caller
        self._reader = Viewer(caller.tenant, host_names)

    def names_of(self, kind: str) -> Sequence[str] | None:
        """Return the names of a kind; None if the caller may not list it, or it has no names."""
        read = _READ.get(kind)
        if read is None:
            return None
        try:
            return read(self)
        except RegistryError as error:
            log.warning("names_not_read", kind=kind, error=str(error))
            return None

    def _vm_type_names(self) -> Sequence[str]:
        return [each.name for each in self._registry.vm_types.list(limit=_MAX_NAMES).items]

    def _image_names(self) -> Sequence[str]:
        return sorted({each.name for each in self._registry.images.list(limit=_MAX_NAMES).items})

    def _network_names(self) -> Sequence[str]:
        page = self._registry.networks.list(tenant=self._caller.tenant, limit=_MAX_NAMES)
        return [each.name for each in page.items]

    def _tenant_names(self) -> Sequence[str] | None:
        if self._caller.tenant is not None:
            return None
        return [each.name for each in self._registry.tenants.list(limit=_MAX_NAMES).items]

    def _group_names(self) -> Sequence[str] | None:
        if self._caller.tenant is not None:
            return None
        page = self._registry.tenants.list(limit=_MAX_NAMES)
        return [each.name for each in page.items if each.is_group]

    def _host_names(self) -> Sequence[str] | None:
        if self._caller.tenant is None:
            return self._reader.names.hosts()
        page = self._registry.vms.list(tenant=self._caller.tenant, limit=_MAX_NAMES)
        # Whether there are hosts without its VMs is hidden from a tenant.
        return sorted({self._reader.host(each.host) for each in page.items if each.host}) or None

    def _resource_names(self) -> Sequence[str]:
        return [each.name for each in self._registry.resources.all()]


_READ: Final[Mapping[str, Callable[[KnownNames], Sequence[str] | None]]] = MappingProxyType(
    {
        "VM type": KnownNames._vm_type_names,
        "image": KnownNames._image_names,
        "network": KnownNames._network_names,
        "tenant": KnownNames._tenant_names,
        "tenant or group": KnownNames._tenant_names,
        "group of tenants": KnownNames._group_names,
        "host": KnownNames._host_names,
        "resource": KnownNames._resource_names,
    }
)
