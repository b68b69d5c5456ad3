"""Experiments: single runs, studies of many runs, and runs on a fleet."""
