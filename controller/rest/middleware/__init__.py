"""Checks before any endpoint runs: who calls, how often, and with which body."""
