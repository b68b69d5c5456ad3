"""Commands about VMs that move."""
