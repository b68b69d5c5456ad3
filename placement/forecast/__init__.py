"""Forecast waiting times: learn VM lifetimes and simulate future rounds with them."""
