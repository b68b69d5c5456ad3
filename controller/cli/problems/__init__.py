"""`fuga solve`."""
