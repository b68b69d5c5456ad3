"""Tests share what SQLAlchemy compiled, and engines of different databases share nothing."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import literal, select
from sqlalchemy.dialects import postgresql, sqlite

from registry.db.engine import make_engine
from tests.compiled_statements import Compiled


def test_a_statement_is_compiled_once_for_engines_that_are_alike(tmp_path: Path) -> None:
    statement = select(literal(1), literal("of this test alone"))
    hits = []
    for number in range(2):
        engine = make_engine(f"sqlite:///{tmp_path}/{number}.db")
        with engine.connect() as connection:
            result = connection.execute(statement)
            hits.append(result.context.cache_hit is engine.dialect.CACHE_HIT)
            assert result.all() == [(1, "of this test alone")]
        engine.dispose()

    assert hits == [False, True]


def test_what_is_compiled_for_one_database_is_not_found_by_another(tmp_path: Path) -> None:
    lite = make_engine(f"sqlite:///{tmp_path}/a.db")
    postgres = make_engine("postgresql:///nowhere")
    kept = {of: Compiled(of, lite.get_execution_options()["compiled_cache"]._kept)
            for of in (lite, postgres)}  # fmt: skip

    assert isinstance(lite.dialect, sqlite.dialect)
    assert isinstance(postgres.dialect, postgresql.psycopg.dialect)
    kept[lite][lite.dialect, "a statement of this test"] = "compiled"
    assert kept[lite].get((lite.dialect, "a statement of this test")) == "compiled"
    assert kept[postgres].get((postgres.dialect, "a statement of this test")) is None
