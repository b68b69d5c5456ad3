"""Draw the house: rooms, what is in them, and which room knows which, from the code's own imports.

Usage: python -m scripts.house        (make house; needs Graphviz)

An arrow points at what is known. Arrows that follow from others are left out: where a room knows
a second one that knows a third, it may know the third as well. Ends with an error if rooms know
one another in a circle.
"""

from __future__ import annotations

import ast
import html
import shutil
import subprocess
import sys
import textwrap
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Final

import grimp

ROOT: Final = Path(__file__).resolve().parents[1]
IMAGES: Final = ROOT / "docs/images"
#: Packages whose rooms are drawn; "house" is all packages.
PICTURES: Final = ("house", "controller", "hypervisor", "placement", "registry", "simulation")


@dataclass(frozen=True, slots=True)
class PackagePicture:
    """Rooms of one picture, and which knows which; the arrows that say no more are left out."""

    modules: Mapping[str, int]  #: by room
    arrows: frozenset[tuple[str, str]]  #: of a room and one that it knows

    @property
    def drawn(self) -> frozenset[tuple[str, str]]:
        """Return the arrows that do not follow from others."""
        below = _transitive_imports(self.arrows)
        return frozenset(
            (room, known)
            for room, known in self.arrows
            if not any(known in below[other] for at, other in self.arrows if at == room)
        )


def plans() -> dict[str, PackagePicture]:
    """Read the imports of every package, and return the plan of each picture.

    Raises
    ------
    CycleError
        If rooms know one another in a circle.
    """
    roots = packages()
    graph = grimp.build_graph(*roots)
    found = {name: _package_plan(graph, roots if name == "house" else [name]) for name in PICTURES}
    for plan in found.values():
        _transitive_imports(plan.arrows)
    return found


def packages() -> list[str]:
    """Return the packages whose imports have contracts: those that we ship."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return list(settings["tool"]["importlinter"]["root_packages"])


def picture_path(name: str) -> str:
    """Return the file of a picture."""
    return "house.svg" if name == "house" else f"house-{name}.svg"


def _package_plan(graph: grimp.ImportGraph, containers: list[str]) -> PackagePicture:
    depth = 1 if len(containers) > 1 else 2
    modules: dict[str, int] = defaultdict(int)
    arrows: set[tuple[str, str]] = set()
    for module in graph.modules:
        room = _room_of(module, containers, depth)
        if room is None:
            continue
        modules[room] += not graph.find_children(module)  # a face is of no count
        for imported in graph.find_modules_directly_imported_by(module):
            known = _room_of(imported, containers, depth)
            if known not in {None, room}:
                arrows.add((room, str(known)))
    return PackagePicture(dict(modules), frozenset(arrows))


def _room_of(module: str, containers: Iterable[str], depth: int) -> str | None:
    """Return the room of a module; None: it is elsewhere, or the face of a package."""
    parts = module.split(".")
    if parts[0] not in containers or len(parts) < depth:
        return None
    return ".".join(parts[:depth])


def _transitive_imports(arrows: Iterable[tuple[str, str]]) -> dict[str, set[str]]:
    known: dict[str, set[str]] = defaultdict(set)
    for room, other in arrows:
        known[room].add(other)
    below: dict[str, set[str]] = defaultdict(set)
    for room in TopologicalSorter(known).static_order():
        for other in known[room]:
            below[room] |= {other} | below[other]
    return below


def render_dot(plan: PackagePicture) -> str:
    """Return a plan as a Graphviz document."""
    lines = [
        "digraph house {",
        'graph [rankdir=TB, nodesep=0.25, ranksep=0.45, bgcolor="white"];',
        'node [shape=box, style="rounded,filled", fillcolor="#f4f1ea", color="#8a8272",'
        ' fontname="Helvetica,Arial,sans-serif", fontsize=11, margin="0.14,0.08"];',
        'edge [color="#6b7a8f", arrowsize=0.6];',
    ]
    for room, count in sorted(plan.modules.items()):
        about = "<br/>".join(map(html.escape, textwrap.wrap(_first_sentence(room), 34)))
        name = html.escape(room.rpartition(".")[2])
        much = "" if count == 1 else f"  ({count} modules)"
        label = f"<b>{name}</b>{much}<br/><font point-size='9'>{about}</font>"
        lines.append(f'"{room}" [label=<{label}>];')
    lines += [f'"{room}" -> "{known}";' for room, known in sorted(plan.drawn)]
    return "\n".join([*lines, "}", ""])


def _first_sentence(room: str) -> str:
    """Return the first sentence of a package's docstring."""
    path = ROOT / room.replace(".", "/")
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    said = ast.get_docstring(ast.parse(file.read_text())) or ""
    return said.partition("\n")[0].replace("`", "")


def main() -> int:
    """Draw every picture."""
    dot = shutil.which("dot")
    if dot is None:
        print("house: needs `dot`: apt-get install graphviz", file=sys.stderr)
        return 2
    try:
        found = plans()
    except CycleError as error:
        print(f"house: a circle: {' -> '.join(error.args[1])}", file=sys.stderr)
        return 1
    for name, plan in found.items():
        target = IMAGES / picture_path(name)
        subprocess.run([dot, "-Tsvg", "-o", target], input=render_dot(plan), text=True, check=True)
        print(f"{target.relative_to(ROOT)}: {len(plan.modules)} rooms, {len(plan.arrows)} arrows")
    return 0


if __name__ == "__main__":
    sys.exit(main())
