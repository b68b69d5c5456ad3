"""The register center is known by its faces: the package's own, and one for each wing."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Final

import registry

ROOT: Final = Path(registry.__file__).parent.parent
CALLERS: Final = ("controller", "lab", "monitor", "service", "simulation", "workers")
#: What is of use beside the register center, and is named as its module is.
BESIDE: Final = frozenset(
    {"registry.db.child_environ", "registry.images.qemu_img", "registry.admin.backup"}
)


def imported() -> Iterator[tuple[str, str]]:
    """Yield what callers import of the register center: file, module."""
    for caller in CALLERS:
        for path in sorted((ROOT / caller).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("registry"):
                    yield str(path.relative_to(ROOT)), str(node.module)


def faces() -> list[str]:
    """Return the package and its wings."""
    wings = sorted(path.parent.name for path in (ROOT / "registry").glob("*/__init__.py"))
    return ["registry", *(f"registry.{wing}" for wing in wings if wing != "records")]


def test_callers_know_the_faces_alone() -> None:
    found = set(imported())

    assert len(found) > 100
    beyond = {(path, module) for path, module in found if module not in {*faces(), *BESIDE}}
    assert beyond == set()


def test_each_name_is_offered_by_one_face() -> None:
    offered = Counter(name for face in faces() for name in import_module(face).__all__)

    assert {name for name, number in offered.items() if number > 1} == set()
    assert len(registry.__all__) < 70
