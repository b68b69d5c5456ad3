"""Recordings: traces made of the decisions of a live system."""
