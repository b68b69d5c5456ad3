"""Domain XML, built and read; no libvirt in here."""
