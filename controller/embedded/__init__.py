"""`fuga up` and `fuga down`: the whole controller on one machine, without a server to install."""
