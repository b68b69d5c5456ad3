"""Straight answers for the API and for metrics: capacity, reasons, shares, lateness."""
