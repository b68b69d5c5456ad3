"""The control centre: leadership, the slot loop, and the periodic sweeps."""
