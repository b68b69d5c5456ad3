"""The machines: how they are reached, what they report, and how they differ from the ledger."""
