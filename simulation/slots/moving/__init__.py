"""Moves in a simulation: options, planning, and the time that moves take."""
