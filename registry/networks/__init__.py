"""What VMs are attached to: networks, who may use them, and the addresses of guests."""

from registry.networks.networks import Offers
from registry.records.networks import CardRules, GuestNetwork, Network, NetworkSource
from registry.subnets import Subnet

__all__ = ["CardRules", "GuestNetwork", "Network", "NetworkSource", "Offers", "Subnet"]
