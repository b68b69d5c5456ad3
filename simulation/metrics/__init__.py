"""What a run records as it goes on, and what it tells at its end."""
