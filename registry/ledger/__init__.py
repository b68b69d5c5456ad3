"""What becomes of VMs and their assignments, and what is freed when one ends."""
