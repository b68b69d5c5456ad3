"""The slot loop of a simulation: hosts, waiting requests, running VMs, round by round."""
