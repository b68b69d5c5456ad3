"""Who has how much, and who is owed what: shares, levels and fair targets."""
