"""What can go wrong with hosts on this machine."""


class LabError(Exception):
    """A host could not be started, stopped or made to fail; the message says why."""
