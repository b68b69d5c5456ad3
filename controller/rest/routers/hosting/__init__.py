"""/v1/host-map and the like: what is asked of all hosts, or of what they are called."""
