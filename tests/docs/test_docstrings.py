"""Docstrings give the shapes of arrays, and name nothing that is gone."""

from __future__ import annotations

import ast
import re
from collections.abc import Container, Iterator
from typing import Final

from tests.docs.markdown import ROOT

#: `(Q,)`, `(H, R)`, `(..., J)`, `(nodes, R)`.
_SHAPE: Final = re.compile(r"\((\.\.\.|[\w']+)(, ?\w+)*,?\)")
_ARRAY: Final = re.compile(r"\b\w*Array\b")
_PACKAGES: Final = (
    "controller", "hypervisor", "lab", "monitor", "placement", "plain_text", "registry",
    "service", "simulation", "workers",
)  # fmt: skip
#: `name`, `Class.name` and `name()` in single backticks.
_REFERENCE: Final = re.compile(r"(?<!`)`([A-Za-z_]\w*(?:\.\w+)*)(?:\(\))?`(?!`)")
#: `name : Type` and `name : list of Type`, as a section of parameters or attributes has them.
_TYPE: Final = re.compile(r"^ *[\w, ]+ : (?:[\w ]+ of )?([A-Z]\w+)", re.MULTILINE)
_ATTRIBUTES: Final = re.compile(r"^( *)Attributes\n *-+\n((?:\1.*\n|\n)*)", re.MULTILINE)
_ATTRIBUTE: Final = re.compile(r"^(\w+) : ", re.MULTILINE)
#: Settings have a prefix that fields have not; libvirt's functions are C's.
_ELSEWHERE: Final = re.compile(r"FUGA_|vir[A-Z]")


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


def identifiers(tree: ast.Module) -> Iterator[str]:
    """Yield what a module's code names, words in strings included."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                yield name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.ClassDef(name=name):
                yield name
            case ast.alias(name=name):
                yield from name.split(".")
            case ast.keyword(arg=str(name)):
                yield name
            case ast.Constant(value=str(name)) if name.isidentifier():
                yield name


def docstrings(tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    """Yield a module's docstrings, with what each is of."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield node, text


def stale_references(tree: ast.Module, known: Container[str]) -> Iterator[str]:
    """Yield what docstrings refer to that is not among the known names."""
    for node, text in docstrings(tree):
        names = [*_REFERENCE.findall(text), *_TYPE.findall(text)]
        for name in names:
            if not _ELSEWHERE.match(name) and any(part not in known for part in name.split(".")):
                yield name
        if isinstance(node, ast.ClassDef):
            own = {*identifiers(ast.Module(node.body, []))}
            for _, section in _ATTRIBUTES.findall(text):
                yield from (name for name in _ATTRIBUTE.findall(section) if name not in own)


def test_docstrings_refer_to_what_there_is() -> None:
    modules = {
        path.relative_to(ROOT): ast.parse(path.read_text())
        for package in _PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
    }
    known = {part for path in modules for part in path.with_suffix("").parts}
    for tree in modules.values():
        known.update(identifiers(tree))

    stale = [
        f"{path}: {name}"
        for path, tree in modules.items()
        for name in stale_references(tree, known)
    ]

    assert stale == []


def test_what_was_renamed_is_found() -> None:
    module = ast.parse('''
class Game:
    """A game of `Host` and `Player.wins`, see ``anything``.

    Attributes
    ----------
    hands : Strategies
        The first.
    players : list of Player
    """

    players: list[Player]
''')

    assert [*stale_references(module, {*identifiers(module), "Strategies"})] == [
        "Host",
        "Player.wins",
        "hands",
    ]
