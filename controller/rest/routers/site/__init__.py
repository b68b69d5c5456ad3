"""/v1/settings: what this installation is told to do."""
