"""The problem files that `fuga solve` reads, and its answers."""
