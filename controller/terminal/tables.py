"""Lays out a table in lines: which columns have room, and their widths."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from rich.cells import cell_len, chop_cells, set_cell_size

if TYPE_CHECKING:
    from controller.terminal.columns import Column

_GAP: Final = "  "
#: A column of sentences is folded rather than made narrower than this.
_PROSE: Final = 18
#: minimum of words of a heading that is folded in tables that are too wide
_FOLDED_WORDS: Final = 3
_BOLD: Final = "\x1b[1m{}\x1b[0m"


def columns_with_room(
    columns: Sequence[Column],
    headings: Sequence[str],
    cells: Sequence[Sequence[str]],
    width: int | None,
) -> list[int]:
    """Return the indices of a table's columns that have room, always including the first."""
    needed = _needed_widths(columns, headings, cells)
    if width is not None and _line_width(needed, range(len(needed))) > width:
        needed = _needed_widths(columns, [_longest_line(each) for each in headings], cells)
    kept = list(range(len(columns)))
    while width is not None and len(kept) > 1 and _line_width(needed, kept) > width:
        candidates = [place for place in kept[1:] if not columns[place].prose] or kept[1:]
        kept.remove(max(candidates, key=lambda place: (columns[place].spare, place)))
    return kept


def render_lines(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int | None, *, bold: bool
) -> Iterator[str]:
    """Yield the lines of a table: headings, a rule, rows; a row is one line unless it has prose.

    Long headings are folded if the table is too wide.
    """
    headings, *cells = rows
    widths = _column_widths(rows)
    if (
        width is not None
        and _line_width(_needed_widths(columns, headings, cells), range(len(columns))) > width
    ):
        widths = _column_widths([[_longest_line(each) for each in headings], *cells])
    if width is not None:
        _fold_widths(columns, widths, width)
    for number, row in enumerate(rows):
        for line in _row_lines(columns, row, widths, width, heading=number == 0):
            yield _BOLD.format(line) if bold and number == 0 else line
        if number == 0:
            yield "─" * (sum(widths) + len(_GAP) * (len(widths) - 1))


def _fold_widths(columns: Sequence[Column], widths: list[int], width: int) -> None:
    """Fit prose into the rest of the width, and the first column into the line."""
    for place, column in enumerate(columns):
        if column.prose:
            others = _line_width(widths, range(len(widths))) - widths[place]
            widths[place] = max(min(widths[place], _PROSE), min(widths[place], width - others))
    if len(widths) == 1:
        widths[0] = min(widths[0], width)


def _row_lines(
    columns: Sequence[Column],
    row: Sequence[str],
    widths: Sequence[int],
    width: int | None,
    *,
    heading: bool,
) -> Iterator[str]:
    parts = [
        _wrap_cell(cell, wide) or [""]
        if width is not None and (column.prose or (heading and len(cell.split()) >= _FOLDED_WORDS))
        else [cell]
        for column, cell, wide in zip(columns, row, widths, strict=True)
    ]
    for number in range(max(map(len, parts))):
        cells = [
            _align_cell(part[number] if number < len(part) else "", wide, right=column.right)
            for column, part, wide in zip(columns, parts, widths, strict=True)
        ]
        yield _GAP.join(cells).rstrip()


def _wrap_cell(cell: str, wide: int) -> list[str]:
    """Return the lines of a text that fit into a width; wide characters take two columns."""
    return [
        part
        for line in textwrap.wrap(cell, wide)
        for part in ([line] if cell_len(line) <= wide else chop_cells(line, wide))
    ]


def _align_cell(cell: str, wide: int, *, right: bool) -> str:
    if cell_len(cell) > wide:
        return set_cell_size(cell, wide - 1) + "…"
    return " " * (wide - cell_len(cell)) + cell if right else set_cell_size(cell, wide)


def _needed_widths(
    columns: Sequence[Column], headings: Sequence[str], cells: Sequence[Sequence[str]]
) -> list[int]:
    """Return the minimum width of each column of a table."""
    return [
        min(wide, _PROSE) if column.prose else wide
        for column, wide in zip(columns, _column_widths([headings, *cells]), strict=True)
    ]


def _longest_line(heading: str) -> str:
    """Return the longest line of a heading, folded into two if it has many words."""
    if len(heading.split()) < _FOLDED_WORDS:
        return heading
    half = -(-len(heading) // 2)
    wide = max(half, *map(len, heading.split()))
    while len(lines := textwrap.wrap(heading, wide)) > 2:
        wide += 1
    return max(lines, key=len)


def _column_widths(rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(cell_len, column)) for column in zip(*rows, strict=True)]


def _line_width(widths: Sequence[int], kept: Sequence[int]) -> int:
    return sum(widths[place] for place in kept) + len(_GAP) * (len(kept) - 1)
