"""The control centre: who leads, the slot loop, and the sweeps beside it."""
