"""One round: what it is decided on, by which policy process, and what it writes."""
