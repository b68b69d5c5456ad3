"""What operators do with the whole: upgrade, check, back up, purge, and see who lives."""
