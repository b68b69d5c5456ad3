"""The command `fuga`: a module for each noun, in rooms by who needs it."""
