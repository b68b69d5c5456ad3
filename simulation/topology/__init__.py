"""The hosts of a simulation, the trees of its tenants, and what befalls hosts."""
