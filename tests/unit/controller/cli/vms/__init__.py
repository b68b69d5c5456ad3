"""Commands about VMs."""
