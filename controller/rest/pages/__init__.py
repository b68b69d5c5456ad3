"""Pages and documents that are the same for every caller."""
