"""Traces: their formats, rows and constraints, read as a run goes on."""
