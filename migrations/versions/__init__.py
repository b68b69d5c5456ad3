"""Every revision of the schema, in order."""
