"""Networks, and the cards of guests: frozen values."""

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
    default: Settable[NetworkSource | None]  #: of hosts that `hosts` does not name; None: not there
    hosts: Settable[Mapping[str, NetworkSource]]
    subnet: Settable[Subnet | None]  #: None: addresses come from elsewhere (DHCP)
    addresses: Observed[int]  #: that may be given to VMs
    addresses_used: Observed[int]
    tenant: Settable[str | None] = None  #: whose it is; None: the operators'
    offered_to: Settable[tuple[str, ...] | None] = None  #: tenants and groups; None: to all
    isolated: Settable[bool] = False  #: its VMs do not reach each other
    filtered: Settable[bool] = True  #: its VMs speak from their own MAC and address alone
    warnings: Observed[tuple[str, ...]] = ()  #: warnings about its addresses


@dataclass(frozen=True, slots=True, kw_only=True)
class CardRules:
    """The filter rules of a VM's network card."""

    isolated: bool = True  #: it does not reach the VMs of its network
    filtered: bool = True  #: it speaks from its own MAC and address alone
    address: str | None = None  #: None: what DHCP gives it
    subnet: str | None = None  #: of which it reaches, if it is isolated, `reaches` alone
    reaches: tuple[str, ...] = ()
    gateway: str | None = None
    dns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestNetwork:
    """The attachment of a VM on its host, with its guest's network settings."""

    mac: str | None  #: None: of a VM from before MACs were kept; libvirt makes one up
    kind: SourceKind
    source: str  #: on its host
    address: str | None = None  #: with the length of the prefix; None: it asks by DHCP
    gateway: str | None = None
    dns: tuple[str, ...] = ()
    card: CardRules = CardRules()


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkLimit:
    """The limits that a network sets on the placement of a request."""

    network: str
    without: frozenset[UUID]  #: hosts that do not have it
    left: int | None  #: VMs that have or can get an address; None: it gives none
