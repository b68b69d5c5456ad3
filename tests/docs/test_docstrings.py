"""Docstrings of public functions that take or return arrays say of which shape these are."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Final

from tests.docs.markdown import ROOT

#: `(Q,)`, `(H, R)`, `(..., J)`, `(nodes, R)`.
_SHAPE: Final = re.compile(r"\((\.\.\.|[\w']+)(, ?\w+)*,?\)")
_ARRAY: Final = re.compile(r"\b\w*Array\b")


def without_shapes(text: str) -> Iterator[str]:
    """Yield the public functions and fields of a module whose arrays have no shape."""
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Module | ast.ClassDef):
            continue
        if isinstance(node, ast.ClassDef) and node.name.startswith("_"):
            continue
        said = (ast.get_docstring(node) or "") if isinstance(node, ast.ClassDef) else ""
        for each in node.body:
            if isinstance(each, ast.FunctionDef) and not each.name.startswith("_"):
                signature = ast.unparse(each.args), ast.unparse(each.returns or ast.Constant(None))
                if _ARRAY.search(" ".join(signature)) and not _SHAPE.search(
                    ast.get_docstring(each) or ""
                ):
                    yield each.name
            if isinstance(each, ast.AnnAssign) and isinstance(node, ast.ClassDef):
                name = ast.unparse(each.target)
                lines = text.splitlines()[max(0, each.lineno - 3) : each.end_lineno]
                if (
                    _ARRAY.search(ast.unparse(each.annotation))
                    and not name.startswith("_")
                    and not _SHAPE.search(said + "".join(lines))
                ):
                    yield f"{node.name}.{name}"


def test_arrays_have_shapes() -> None:
    silent = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in sorted((ROOT / "placement").rglob("*.py"))
        for name in without_shapes(path.read_text())
    ]

    assert silent == []


def test_what_has_none_is_found() -> None:
    module = '''
class Hosts:
    free: IntArray  #: what is left
    room: IntArray  #: (H, R) what may be taken

def most(levels: FloatArray) -> float:
    """Return the highest level."""

def least(levels: FloatArray) -> float:
    """Return the lowest of levels, shape (X,)."""
'''

    assert sorted(without_shapes(module)) == ["Hosts.free", "most"]
