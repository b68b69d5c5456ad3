"""Optional moves that improve the cluster: private terms, prices and local search."""
