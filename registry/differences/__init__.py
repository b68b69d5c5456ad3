"""Differences between hosts and the ledger, and their repair by operators."""
