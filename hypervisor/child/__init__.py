"""The code of child processes, the only place that calls libvirt."""
