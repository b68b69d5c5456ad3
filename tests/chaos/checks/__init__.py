"""Checks of what came after the first ones: elastic requests, proofs and closed months."""
