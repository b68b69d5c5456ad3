"""Measures of a decision: fairness, upper bounds and shortages."""
