"""What a round reads, commits and leaves on record, and whose turn it is to decide."""
