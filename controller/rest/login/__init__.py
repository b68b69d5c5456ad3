"""Logging in: what gives a token of limited life to those who have none yet."""
