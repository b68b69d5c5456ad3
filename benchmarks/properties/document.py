"""What was found, as Markdown; and the same read back from the document."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from benchmarks.properties.cases import FAMILIES, Family, PropertyCase
from benchmarks.properties.checks import PROPERTIES
from benchmarks.properties.claims import SOURCES, claim
from benchmarks.properties.search import (
    HOST_PROPERTIES,
    MECHANISMS,
    POLICY_PROPERTIES,
    TREE_FAMILIES,
    TREE_MECHANISMS,
    TREE_PROPERTIES,
    WHOLE,
    Cell,
    why_not_checked,
)

Found: TypeAlias = Mapping[tuple[str, str, Family], Cell | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of the document: the searches that it reports together."""

    name: str
    mechanisms: tuple[str, ...]
    properties: tuple[str, ...]
    families: tuple[Family, ...]
    sources: str

    @property
    def begin(self) -> str:
        return f"<!-- {self.name}: begin, written by python -m benchmarks.properties -->"

    @property
    def end(self) -> str:
        return f"<!-- {self.name}: end -->"

    def searches(self) -> list[tuple[str, str, Family]]:
        """Property, mechanism and family of each search."""
        return list(itertools.product(self.properties, self.mechanisms, self.families))


PARTS: Final = {
    part.name: part
    for part in (
        Part(
            name="properties",
            mechanisms=MECHANISMS,
            properties=HOST_PROPERTIES,
            families=FAMILIES,
            sources=SOURCES,
        ),
        Part(
            name="trees",
            mechanisms=TREE_MECHANISMS,
            properties=TREE_PROPERTIES,
            families=TREE_FAMILIES,
            sources="`mch_staged` claims the guarantee where no job that stopped holds any of "
            "what others still compete for, and no paper is behind it.",
        ),
        Part(
            name="policies",
            mechanisms=WHOLE,
            properties=POLICY_PROPERTIES,
            families=FAMILIES,
            sources="No paper claims any of this of whole VMs; that nothing is left out that fits "
            "is what our catalogue says.",
        ),
    )
}


def markdown(part: Part, found: Found, *, cases: int, seed: int) -> str:
    """Return the summary, and a table with examples for each property."""
    sections = [
        f"{cases} cases of each kind, seed {seed}. {part.sources}",
        _summary(part, found),
        *(_of_property(part, prop, found) for prop in part.properties),
    ]
    return "\n\n".join(sections)


def put_into(document: str, part: Part, text: str) -> str:
    """Return the document with ``text`` between the part's markers.

    Raises
    ------
    ValueError
        If the markers are not there.
    """
    before, begin, rest = document.partition(part.begin)
    _, end, after = rest.partition(part.end)
    if not begin or not end:
        raise ValueError(f"the document has no markers {part.begin} and {part.end}")
    return f"{before}{begin}\n\n{text}\n\n{end}{after}"


def _summary(part: Part, found: Found) -> str:
    head = ["", *(PROPERTIES[prop].title for prop in part.properties)]
    rows = [
        [f"`{mechanism}`", *(_in_short(part, prop, mechanism, found) for prop in part.properties)]
        for mechanism in part.mechanisms
    ]
    return _table(head, rows)


def _in_short(part: Part, prop: str, mechanism: str, found: Found) -> str:
    cells = [cell for family in part.families if (cell := found[prop, mechanism, family])]
    if not cells:
        return "not checked"
    failing = [cell.family for cell in cells if cell.example]
    if not failing:
        return "holds"
    return "fails" if "plain" in failing else "fails: " + ", ".join(failing)


def _of_property(part: Part, prop: str, found: Found) -> str:
    about = PROPERTIES[prop]
    rows, examples = [], []
    for mechanism in part.mechanisms:
        cells = [found[prop, mechanism, family] for family in part.families]
        if not any(cells):
            continue
        texts = [_cell(prop, mechanism, family, found) for family in part.families]
        rows.append([f"`{mechanism}`", claim(mechanism, prop), *texts])
        first = next((cell for cell in cells if cell and cell.example), None)
        if first:
            examples.append(
                f"- `{mechanism}`: {about.found.format(f'{100 * first.by:.1f} %')}:\n"
                f"  `{first.example}`"
            )
    sections = [
        f"#### {about.title}",
        about.says,
        _table(["", "claimed", *part.families], rows),
        *(["\n".join(examples)] if examples else []),
    ]
    return "\n\n".join(sections)


def _cell(prop: str, mechanism: str, family: Family, found: Found) -> str:
    cell = found[prop, mechanism, family]
    if cell is None:
        return why_not_checked(prop, mechanism, family) or ""
    if cell.example is None:
        return f"none in {cell.cases}"
    return "not shown" if prop == "weak_sharing_incentive" else "fails"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def read_cells(document: str, part: Part) -> dict[tuple[str, str, Family], str]:
    """Return what the tables of a document say of each property, mechanism and family."""
    row = r"^\| `([^`]+)` \|" + r" ([^|]*) \|" * (1 + len(part.families)) + "$"
    return {
        (prop, name, family): cell
        for prop, section in _sections(document, part)
        for name, _claim, *cells in re.findall(row, section, re.MULTILINE)
        for family, cell in zip(part.families, cells, strict=True)
    }


def read_examples(document: str, part: Part) -> list[tuple[str, str, float, PropertyCase]]:
    """Return the counter-examples of a document: property, mechanism, by how much, case."""
    return [
        (prop, name, float(percent) / 100, PropertyCase.read(text))
        for prop, section in _sections(document, part)
        for name, percent, text in re.findall(
            r"^- `([^`]+)`: [^\n]*?([\d.]+) %[^\n]*:\n  `([^`]+)`$", section, re.MULTILINE
        )
    ]


def read_seed(document: str, part: Part) -> int:
    """Return the seed stated in a part of the document."""
    return int(re.findall(r"cases of each kind, seed (\d+)", _text(document, part))[0])


def _text(document: str, part: Part) -> str:
    return document.partition(part.begin)[2].partition(part.end)[0]


def _sections(document: str, part: Part) -> list[tuple[str, str]]:
    titles = {each.title: prop for prop, each in PROPERTIES.items()}
    found = re.split(r"^#### (.*)$", _text(document, part), flags=re.MULTILINE)[1:]
    return [(titles[title], text) for title, text in zip(found[::2], found[1::2], strict=True)]
