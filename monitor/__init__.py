"""The cloud environment monitor: polls libvirt hosts, detects failure, drift and strangers."""
