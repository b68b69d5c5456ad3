"""Answers to questions of API calls: capacity, explanations, shares, estimates, overdue work."""
