"""What is on offer: resources, VM types, their limits and overheads."""
