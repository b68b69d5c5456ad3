"""Domains of VMs on a host: look-ups by their marks, and disks that are attached to them."""
