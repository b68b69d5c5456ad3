"""The control centre, the REST API and the command line."""
