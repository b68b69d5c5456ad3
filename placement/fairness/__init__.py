"""Fairness of tenants: shares, levels and fair targets."""
