"""What tenants ask for: requests, their VMs and groups, and the rules that they state."""
