"""What workers have in hand: which rows are due, and how each piece of work ends."""
