"""The table of a report that compares all variants, with the significance of differences."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any, Final

from simulation.experiments.variant_comparison import unchanged_variant
from simulation.metrics.summary import MEASURES, MEASURES_OF_MOVES
from simulation.report.plot_style import Palette

#: More stand below each other instead: a page is so wide, and paper does not scroll.
_MAX_COLUMNS: Final = 4


def comparison_section(comparison: Mapping[str, Any], palette: Palette) -> str:
    """Return the table that compares a study's variants, as HTML."""
    variants = comparison["variants"]
    names = [
        f'<span class="swatch" style="{palette.swatch(row["variant"])}"></span>'
        f"{escape(row['variant'])}"
        for row in variants
    ]
    known = {path for row in variants for path in row["measures"]}
    measures = [*MEASURES, *(each for each in MEASURES_OF_MOVES if each[0] in known)]
    titles = [
        f"{escape(title)} <small>{escape(unit)}; {'more' if more else 'less'} is better</small>"
        for _, title, unit, more in measures
    ]
    cells = [_measure_cells(variants, *measure) for measure in measures]
    if len(variants) <= _MAX_COLUMNS:
        table, which, look = _render_table("measure", names, titles, cells), "line", ""
    else:
        turned = [list(row) for row in zip(*cells, strict=True)]
        table, which, look = _render_table("variant", titles, names, turned), "column", "dense"
    seeds = max((len(row["seeds"]) for row in variants), default=0)
    chance = (
        f"Means over {seeds} seeds with their standard deviation{_base_sentence(comparison)}, "
        "seed by seed, with its 95 % confidence interval: <em>p</em> is the probability of one "
        "as large by chance alone (sign-flip test); up to 0.05 it is called significant."
        if seeds > 1
        else f"One seed{_base_sentence(comparison)}; nothing is said about chance "
        "(<code>--seeds</code>)."
    )
    return (
        "<h2>Side by side</h2>"
        f'<p class="reading">The best of each {which} is bold. {chance}</p>'
        f'<div class="scroll"><table id="comparison" class="{look}">{table}</table></div>'
    )


def _render_table(corner: str, head: list[str], first: list[str], cells: list[list[str]]) -> str:
    """Return an HTML table of a head row, a first column and cells."""
    columns = "".join(f"<th>{each}</th>" for each in head)
    rows = "".join(
        f"<tr><td>{name}</td>{''.join(row)}</tr>" for name, row in zip(first, cells, strict=True)
    )
    return f"<thead><tr><th>{corner}</th>{columns}</tr></thead><tbody>{rows}</tbody>"


def _measure_cells(
    variants: list[Mapping[str, Any]], path: str, _title: str, unit: str, more_is_better: bool
) -> list[str]:
    """Return a cell of the comparison for each variant with one measure; the best is bold."""
    means = [row["measures"][path]["mean"] for row in variants]
    known = [mean for mean in means if mean is not None]
    looks = {_format_value(mean, unit) for mean in known}
    best = _format_value((max if more_is_better else min)(known), unit) if len(looks) > 1 else None
    cells = []
    for row, mean in zip(variants, means, strict=True):
        summary, shown = row["measures"][path], _format_value(mean, unit)
        cells.append(
            f'<td class="{"best" if shown == best else ""}" data-path="{path}" '
            f'data-variant="{escape(row["variant"])}" '
            f'data-value="{"" if mean is None else repr(mean)}">'
            f"{shown}{_mean_and_range(summary, unit)}{_difference_from_base(summary, unit)}</td>"
        )
    return cells


def _base_sentence(comparison: Mapping[str, Any]) -> str:
    """Return the sentence that names the variants from which differences are taken."""
    based = [row for row in comparison["variants"] if row["base"] is not None]
    if not based:
        return ""
    on_hosts = [row for row in based if row["base"] == unchanged_variant(row["variant"])]
    words = ["of each <em>changed</em> from the same <em>unchanged</em>"] if on_hosts else []
    if len(on_hosts) < len(based):
        words.append(f"{'else ' if on_hosts else ''}from {escape(str(comparison['base']))}")
    return f". Below, the difference {', '.join(words)}"


def _mean_and_range(summary: Mapping[str, Any], unit: str) -> str:
    """Return the standard deviation of a measure over seeds, as HTML; "" for one seed."""
    return "" if not summary["sd"] else f"<small>± {_format_value(summary['sd'], unit)}</small>"


def _difference_from_base(summary: Mapping[str, Any], unit: str) -> str:
    """Return a measure's difference from the base variant, with its significance, as HTML."""
    found = summary.get("difference")
    if not found or not found["mean"]:
        return ""
    sign = "+" if found["mean"] > 0 else "−"
    gap = _format_value(abs(found["mean"]), unit).replace(" %", " points")
    if float(gap.split()[0].replace(",", "")) == 0:
        return ""
    if found["p"] is not None:
        gap = f"{gap} ± {_format_value(found['half_width'], unit).replace(' %', '')}"
    word = ", significant" if found["significant"] else ""
    chance = "" if found["p"] is None else f"<small>p = {found['p']:.2g}{word}</small>"
    return f"<small>{sign}{gap}</small>{chance}"


def _format_value(value: float | None, unit: str) -> str:
    """Return the value of a measure with its unit."""
    if value is None:
        return "–"
    return f"{100 * value:.2f} %" if unit.startswith("%") else f"{value:,.1f} {unit}"
