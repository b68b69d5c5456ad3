"""Metrics of a run: time series and the summary."""
