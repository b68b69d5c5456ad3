"""Capacity of classes of hosts by hour: sampled, packed by day, and read as history and trend."""

from registry.records.capacity import CapacityPoint

__all__ = ["CapacityPoint"]
