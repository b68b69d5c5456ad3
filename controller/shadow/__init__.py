"""A second policy in shadow of the one that decides, without effect."""
