"""The cloud environment monitor: polls libvirt hosts, and detects failures and differences."""
