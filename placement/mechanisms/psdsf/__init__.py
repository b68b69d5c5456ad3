"""Per-server dominant-share fairness (Khamse-Ashari et al. 2017)."""
