"""Errors of lab hosts."""


class LabError(Exception):
    """A host could not be started, stopped or made to fail; the message says why."""
