"""Records of the register center: frozen values without lazy loading."""
