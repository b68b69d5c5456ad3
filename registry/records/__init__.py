"""What leaves the register center: frozen values; nothing loads lazily behind a caller."""
