"""Policies that decide one VM at a time; `fuga` is a package of its own."""
