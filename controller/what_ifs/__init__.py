"""What-ifs: the site simulated as it is and with something changed, in child processes."""
