"""Time per round, as ratios: `python -m benchmarks`."""
