"""SQL statements of the register center are compiled once a process of tests, not once a test.

SQLAlchemy keeps what it has compiled with each engine, and each test has engines of its own:
a third of the processor time of tests on a register center was the same statements compiled
again. Engines that are alike share what is compiled here, as those of one process that serves
share it from call to call.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine
from sqlalchemy.util import LRUCache

from registry.db import engine as engines

#: Far more statements than there are.
_MOST = 10_000


class Compiled(dict[Any, Any]):
    """What an engine finds compiled: kept by what its dialect is, not by which object it is."""

    def __init__(self, engine: Engine, kept: LRUCache[Any, Any]) -> None:
        super().__init__()
        self._engine = engine
        self._kept = kept

    def get(self, key: Any, default: Any = None) -> Any:
        return self._kept.get(self._own(key), default)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._kept[self._own(key)] = value

    def _own(self, key: tuple[Any, ...]) -> Hashable:
        of, *what = key
        assert of is self._engine.dialect
        return (type(of), of.server_version_info, of.use_insertmanyvalues_wo_returning, *what)


@pytest.fixture(scope="session", autouse=True)
def compiled_once() -> Iterator[None]:
    """Have the register center's engines in this process share what they compile."""
    kept: LRUCache[Any, Any] = LRUCache(_MOST)

    def create(*args: Any, **kwargs: Any) -> Engine:
        engine = create_engine(*args, **kwargs)
        engine.update_execution_options(compiled_cache=Compiled(engine, kept))
        return engine

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engines, "create_engine", create)
        yield
