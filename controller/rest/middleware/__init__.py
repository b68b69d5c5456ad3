"""Checks before an endpoint runs (caller, rate, body), and the audit of calls."""
