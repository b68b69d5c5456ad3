"""What happened and who asked: events, the audit, and answers kept for repeated calls."""
