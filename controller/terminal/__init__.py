"""Output of every command: tables, YAML, errors, and the terminal itself."""
