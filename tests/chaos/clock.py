"""PostgreSQL's clock, as fuga reads it, set back and right again.

fuga reads the time by ``clock_timestamp()``. A function of that name stands before PostgreSQL's
own in the search path of the database and adds a shift.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import psycopg

#: Longer than a run lasts: a time before the run began was written while the clock was back.
STEP_S: Final = 6 * 3600.0

_INSTALL = """
CREATE SCHEMA chaos;
CREATE TABLE chaos.clock (shift interval NOT NULL);
INSERT INTO chaos.clock VALUES ('0');
CREATE FUNCTION public.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS
  'SELECT pg_catalog.clock_timestamp() + shift FROM chaos.clock';
"""


def install(connection: psycopg.Connection[Any], database: str) -> None:
    """Have every connection that is opened from now on read the clock that can be set."""
    connection.execute(_INSTALL)
    connection.execute(f"ALTER DATABASE {database} SET search_path = public, pg_catalog".encode())


def set_back(connection: psycopg.Connection[Any], by_s: float) -> None:
    """Set the clock back by so much from the true time."""
    connection.execute("UPDATE chaos.clock SET shift = make_interval(secs => %s)", (-by_s,))


def true_time(at: float, record: Sequence[Mapping[str, Any]]) -> float:
    """Return when something was written, whatever the database's clock said then."""
    began_at = next((float(each["at"]) for each in record if "at" in each), 0.0)
    return at + STEP_S if at < began_at - STEP_S / 2 else at
