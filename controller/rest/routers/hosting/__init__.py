"""/v1/host-map and the like: routes about all hosts, or about their names."""
