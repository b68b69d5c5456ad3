"""Commands of those who ask for VMs and use them."""
