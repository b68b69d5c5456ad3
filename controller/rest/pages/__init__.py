"""Pages and documents that are the same for everybody."""
