"""Networks of VMs: their users, sources on hosts, and the addresses of guests."""

from registry.networks.networks import Offers
from registry.records.networks import GuestNetwork, InterfaceRules, Network, NetworkSource
from registry.subnets import Subnet

__all__ = ["GuestNetwork", "InterfaceRules", "Network", "NetworkSource", "Offers", "Subnet"]
