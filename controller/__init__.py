"""The control centre and what is asked of it: rounds, the REST API, the command line."""
