"""Differences between hosts and the ledger, and their repair by operators."""

from registry.reconciliation import Difference, Remedy
from registry.records.hosts import HostDifference

__all__ = ["Difference", "HostDifference", "Remedy"]
