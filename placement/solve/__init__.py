"""What `fuga solve` reads and answers."""
