"""Runs as they are asked for: one, many side by side, or shared by a fleet."""
