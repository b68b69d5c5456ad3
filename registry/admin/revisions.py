"""The revisions of the schema that this code can make: the package ``migrations``."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Final

from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

from registry.errors import SchemaOutdatedError

#: The first of the revisions that were merged into 0066, and the last commit that has them.
FIRST_BEFORE_MERGE: Final = "0046"
LAST_BEFORE_MERGE: Final = "9423c94a329f"


def alembic_config(connection: Connection | None = None) -> Config:
    """Return Alembic's configuration; its scripts are the package ``migrations``."""
    config = Config()
    config.set_main_option("script_location", str(files("migrations")))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config


@cache
def head_revision() -> str:
    """Return the schema revision that this code needs."""
    head = ScriptDirectory.from_config(alembic_config()).get_current_head()
    if head is None:
        raise SchemaOutdatedError(None, "a revision: the package `migrations` is incomplete")
    return head


@cache
def first_revision() -> str:
    """Return the revision that creates all tables; earlier ones were merged into it."""
    (base,) = ScriptDirectory.from_config(alembic_config()).get_bases()
    return base


@cache
def known_revisions() -> frozenset[str]:
    """Return every schema revision that this code can make."""
    scripts = ScriptDirectory.from_config(alembic_config())
    return frozenset(each.revision for each in scripts.walk_revisions())
