"""Plain, slow versions of what the engine does fast: oracles of the tests."""
