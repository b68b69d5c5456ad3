"""Who calls, how often, and with what bodies: before any endpoint is asked."""
