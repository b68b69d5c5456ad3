"""Calls that change something: idempotency, versions, audit, acceptance in groups."""
