"""The database of a state folder: another one has neither its hosts nor its tokens."""

from __future__ import annotations

import hashlib
from typing import Final

from controller.embedded.state import SetupRecord, StateDir
from controller.terminal.errors import CliError
from registry import Registry, SchemaOutdatedError

_DIGITS: Final = 16  #: of the fingerprint


class AnotherDatabaseError(CliError):
    """The database is not that of the state folder."""

    def __init__(self, state: StateDir) -> None:
        super().__init__(
            f"the state in {state.path} belongs to another database than the one that"
            " FUGA_DATABASE_URL names now (unset: fuga.db in that folder). Set FUGA_DATABASE_URL as"
            " it was, or FUGA_STATE_DIR to another folder for a site of its own"
        )


def site_fingerprint(registry: Registry) -> str:
    """Return hex digits that differ between the databases of two sites.

    The secret from which they are made cannot be computed from them.
    """
    secret = registry.host_identities.secret()
    return hashlib.sha256(b"site of the state folder" + secret).hexdigest()[:_DIGITS]


def check_site(memory: SetupRecord, state: StateDir, database_url: str) -> str | None:
    """Return the fingerprint of a database; None while its schema is older or missing.

    Raises
    ------
    AnotherDatabaseError
        If the state folder belongs to the database of another site.
    """
    try:
        registry = Registry.connect(database_url)
    except SchemaOutdatedError:
        return None
    try:
        found = site_fingerprint(registry)
        if memory.site is None:  # of an earlier release, or new
            names = {host.name for host in registry.host_identities.all()}  # also retired ones
            is_foreign = memory.registered and names.isdisjoint(memory.lab_hosts)
        else:
            is_foreign = memory.site != found
    finally:
        registry.close()
    if is_foreign:
        raise AnotherDatabaseError(state)
    return found
