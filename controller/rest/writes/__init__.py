"""Calls that change something: repeated, versioned, audited, accepted together."""
