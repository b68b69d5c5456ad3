"""Messages between our processes: what one looks like, and how strange ones are dropped."""
