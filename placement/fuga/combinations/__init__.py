"""Combinations of VMs that one host may take: search, tables and cache."""
