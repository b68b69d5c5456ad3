"""`fuga simulate` and `fuga reproduce`."""
