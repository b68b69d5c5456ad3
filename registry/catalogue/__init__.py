"""The catalogue: resources and VM types with their limits and overheads."""

from registry.catalogue.resources import VMS, VOLUMES
from registry.records.catalogue import ResourceDef, VmType

__all__ = ["VMS", "VOLUMES", "ResourceDef", "VmType"]
