"""Moves that are made for what the cluster gains by them, not for need: terms, prices, search."""
