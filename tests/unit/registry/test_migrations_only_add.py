"""Revisions since the last release leave alone what its processes use: they may still run."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
VERSIONS = "migrations/versions"
_ADDS = {"create_table", "create_index", "add_column", "execute", "get_bind", "bulk_insert", "f"}
_TAKES = re.compile(r"\b(DROP\s+(TABLE|COLUMN)|RENAME|SET\s+NOT\s+NULL)\b", re.IGNORECASE)
_TELLS = re.compile(r"UPDATE schema_serves SET code_since = '(\w+)'")
_SINCE = re.compile(r"^drops_what_is_unused_since = \"(v[\w.]+)\"$", re.MULTILINE)


def what_takes(source: str) -> list[str]:
    """Return what of a revision an older process might stumble over."""
    found = []
    made = set()
    for call in (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)):
        name = _of_op(call.func)
        first = call.args[0] if call.args else None
        if name == "create_table" and isinstance(first, ast.Constant):
            made.add(first.value)
        if name is not None and name not in _ADDS and not _frees(call):
            found.append(name)
        if name == "add_column" and not _may_be_left_out(call.args[1]):
            found.append("add_column without a default")
    for call in (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)):
        of = [each.value for each in call.args if isinstance(each, ast.Constant)]
        unique = {key.arg: ast.unparse(key.value) for key in call.keywords}.get("unique")
        if _of_op(call.func) == "create_index" and unique == "True" and not made & set(of):
            found.append("create_index unique")
    return found + [match[0] for match in _TAKES.finditer(source)]


def _of_op(function: ast.expr) -> str | None:
    if isinstance(function, ast.Attribute) and ast.unparse(function.value) == "op":
        return function.attr
    return None


def _frees(call: ast.Call) -> bool:
    """Return whether it only stops refusing rows that no process writes."""
    kinds = [ast.unparse(key.value) for key in call.keywords if key.arg == "type_"]
    return _of_op(call.func) == "drop_constraint" and kinds == ["'foreignkey'"]


def _may_be_left_out(column: ast.expr) -> bool:
    said = {key.arg: ast.unparse(key.value) for key in getattr(column, "keywords", ())}
    return said.get("nullable", "True") == "True" or "server_default" in said


def git(*words: str) -> list[str]:
    command = ["git", "-c", f"safe.directory={ROOT}", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.split() if done.returncode == 0 else []


def test_revisions_since_the_last_release_only_add():
    released = git("describe", "--tags", "--match", "v[0-9]*", "--abbrev=0")
    if not released:
        return  # nothing is bound by a release that is not there
    known = set(git("ls-tree", "--name-only", released[0], f"{VERSIONS}/"))
    older = set(git("tag", "--merged", released[0]))
    for path in sorted((ROOT / VERSIONS).glob("[0-9]*.py")):
        if f"{VERSIONS}/{path.name}" not in known:
            source = path.read_text()
            unused, shown = _SINCE.search(source), _TELLS.search(source)
            assert (unused and unused[1] in older and shown) or not what_takes(source), path.name


@pytest.mark.parametrize(
    ("statement", "taken"),
    [
        ('op.create_table("new", sa.Column("id", sa.Uuid(), nullable=False))', []),
        ('op.add_column("vms", sa.Column("note", sa.Text()))', []),
        ('op.add_column("a", sa.Column("n", INT, nullable=False, server_default="0"))', []),
        ('op.create_index("ix", "vms", ["note"])', []),
        ('op.drop_constraint("fk", "vms", type_="foreignkey")', []),
        ('op.drop_constraint("ck", "vms", type_="check")', ["drop_constraint"]),
        ('op.create_table("new")\nop.create_index("uq", "new", ["a"], unique=True)', []),
        ('op.add_column("a", sa.Column("n", nullable=False))', ["add_column without a default"]),
        ('op.create_index("uq", "vms", ["name"], unique=True)', ["create_index unique"]),
        ('op.drop_column("vms", "name")', ["drop_column"]),
        ('op.alter_column("vms", "name", nullable=False)', ["alter_column"]),
        ('op.execute("ALTER TABLE vms RENAME TO machines")', ["RENAME"]),
        ('with op.batch_alter_table("vms") as batch:\n    pass', ["batch_alter_table"]),
    ],
)  # fmt: skip
def test_what_takes_something_away_is_found(statement: str, taken: list[str]):
    assert what_takes(statement) == taken
