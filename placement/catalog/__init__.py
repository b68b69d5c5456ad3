"""Every policy and mechanism by name, plugins among them, and the policies of zones."""
