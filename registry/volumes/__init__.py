"""Volumes: disks of tenants that outlive their VMs."""

from registry.records.volumes import MAX_ATTACHED, MAX_SIZE_GIB, Volume, VolumeClaim, VolumeStep
from registry.volumes.host_files import serial_of_volume

__all__ = [
    "MAX_ATTACHED",
    "MAX_SIZE_GIB",
    "Volume",
    "VolumeClaim",
    "VolumeStep",
    "serial_of_volume",
]
