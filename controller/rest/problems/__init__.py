"""Problem documents for every error, and refused calls for the audit."""
