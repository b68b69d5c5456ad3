"""Runs as they are asked for: one, many beside each other, or shared by a fleet."""
