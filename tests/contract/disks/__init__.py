"""Contracts of disks that outlive VMs."""
