"""The exact placement, by an integer program."""
