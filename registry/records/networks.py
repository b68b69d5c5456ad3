"""Networks, and the interfaces of guests: frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal
from uuid import UUID

from registry.records.fields import Observed, Settable
from registry.subnets import Subnet

SourceKind = Literal["network", "bridge"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkSource:
    """The source of a network on a host: a libvirt network or a bridge."""

    kind: SourceKind
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """A network of VMs."""

    name: Settable[str]
    #: source on hosts that `hosts` does not name; None: those have no network
    default: Settable[NetworkSource | None]
    hosts: Settable[Mapping[str, NetworkSource]]
    subnet: Settable[Subnet | None]  #: None if addresses come from elsewhere (DHCP)
    addresses: Observed[int]  #: number of addresses that VMs can get
    addresses_used: Observed[int]
    tenant: Settable[str | None] = None  #: owner of the network; None: the operators
    #: tenants and groups that may use it; None: all
    offered_to: Settable[tuple[str, ...] | None] = None
    isolated: Settable[bool] = False  #: its VMs do not reach each other
    filtered: Settable[bool] = True  #: its VMs speak from their own MAC and address alone
    warnings: Observed[tuple[str, ...]] = ()  #: warnings about its addresses


@dataclass(frozen=True, slots=True, kw_only=True)
class InterfaceRules:
    """The filter rules of a VM's network interface."""

    isolated: bool = True  #: it does not reach the VMs of its network
    filtered: bool = True  #: it speaks from its own MAC and address alone
    address: str | None = None  #: None: what DHCP gives it
    subnet: str | None = None  #: subnet of the network; an isolated VM reaches only `reaches` in it
    reaches: tuple[str, ...] = ()
    gateway: str | None = None
    dns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestNetwork:
    """The attachment of a VM on its host, with its guest's network settings."""

    mac: str | None  #: None: of a VM from before MACs were kept; libvirt makes one up
    kind: SourceKind
    source: str  #: name of the source on the host
    address: str | None = None  #: with the length of the prefix; None: it asks by DHCP
    gateway: str | None = None
    dns: tuple[str, ...] = ()
    interface_rules: InterfaceRules = InterfaceRules()


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkLimit:
    """The limits that a network sets on the placement of a request."""

    network: str
    without: frozenset[UUID]  #: hosts that do not have the network
    left: int | None  #: VMs that have or can get an address; None: the network gives no addresses
