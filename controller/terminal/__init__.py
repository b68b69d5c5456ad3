"""What every command prints with: tables, YAML, errors, and the terminal itself."""
