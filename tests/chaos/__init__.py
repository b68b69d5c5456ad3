"""Kill, pause and cut things while tenants keep asking; then look, by other eyes, at what is left.

``python -m tests.chaos --faults 60 --seeds 1,2,3`` (or `make chaos`) is the long form.
"""
