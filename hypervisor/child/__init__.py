"""What runs in child processes, where alone libvirt is called."""
