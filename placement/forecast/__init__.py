"""How long requests will wait: lifetimes learned from VMs, and rounds played ahead on them."""
