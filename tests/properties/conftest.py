"""Hypothesis for this folder: the same examples everywhere, no verdict by the clock."""

from hypothesis import settings

settings.register_profile("fuga", derandomize=True, deadline=None, max_examples=60)
settings.load_profile("fuga")
