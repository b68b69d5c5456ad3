"""Calls that change something: idempotency, versions, audit, work done for several at once."""
