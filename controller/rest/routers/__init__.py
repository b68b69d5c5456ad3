"""The endpoints, a module for each collection."""
