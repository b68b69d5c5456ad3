"""The cloud environment monitor: polls libvirt hosts, detects failures and differences."""
