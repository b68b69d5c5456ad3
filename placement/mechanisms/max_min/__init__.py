"""Mechanisms of max-min fairness, by levels that rise together."""
