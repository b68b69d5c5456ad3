"""Moves in a simulation: what a study asks of them, who decides them, and what they take."""
