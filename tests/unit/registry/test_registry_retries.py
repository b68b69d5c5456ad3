"""Whatever writes is tried again when the database took it back for the sake of others."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import registry

SOURCES = Path(registry.__file__).parent


def writers() -> Iterator[tuple[str, ast.FunctionDef]]:
    """Every function that opens a transaction that writes, and where it is."""
    for path in sorted(SOURCES.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and _opens_a_write(node):
                yield f"{path.relative_to(SOURCES.parent)}:{node.lineno} {node.name}", node


def _opens_a_write(function: ast.FunctionDef) -> bool:
    return any(
        isinstance(call.func, ast.Attribute)
        and call.func.attr == "write"
        and ast.unparse(call.func.value).endswith("database")
        for call in ast.walk(function)
        if isinstance(call, ast.Call)
    )


def test_every_method_that_writes_is_retried() -> None:
    found = dict(writers())

    forgotten = [
        place
        for place, function in found.items()
        if "retry_on_rollback" not in [ast.unparse(each) for each in function.decorator_list]
    ]

    assert len(found) > 20
    assert forgotten == [], (
        "PostgreSQL may take any transaction back: decorate with @retry_on_rollback"
    )
