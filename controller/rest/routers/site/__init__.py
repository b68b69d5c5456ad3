"""/v1/settings: the settings of this installation."""
