"""Straight answers for the API and for metrics: capacity, reasons, standings, lateness."""
