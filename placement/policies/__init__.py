"""Policies that decide one VM at a time; `fuga` has a room of its own."""
