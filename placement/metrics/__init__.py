"""How good a decision is: fairness, what was possible, and what was short."""
