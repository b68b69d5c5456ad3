"""Plans of moves: destinations for running VMs, and the order of their moves."""
