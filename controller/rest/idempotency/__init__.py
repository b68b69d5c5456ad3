"""Calls that change something: idempotency keys, ETags, and work done for several calls at once."""
