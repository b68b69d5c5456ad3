"""A second policy beside the one that decides, without effect."""
