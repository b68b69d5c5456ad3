"""Tools for filling hosts: a draft of the round, and rules for hosts and order."""
