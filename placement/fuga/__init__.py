"""FUGA: the extensive game between hosts, solved by backward induction (Xu and Yu 2014)."""
