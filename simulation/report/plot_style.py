"""The style of plots: one colour for each policy in every plot, safe for the colour-blind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

#: Okabe and Ito's palette, without black and yellow: distinct for colour-blind readers.
_COLOURS: Final = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#CC79A7",
    "#D55E00",
    "#56B4E9",
    "#6A51A3",
    "#7F7F7F",
)
#: Lines beyond the palette differ by their dashes.
_DASHES: Final = ("-", "--", ":", "-.")
_HATCHES: Final = ("", "////", "....", "xxxx")  #: of bars in their place
_BORDERS: Final = ("solid", "dashed", "dotted", "double")  #: in the page's tables
_LEGEND_WIDTH: Final = 110  #: letters side by side
#: Durations that an axis names.
_DURATIONS: Final = (
    (0, "0"),
    (1, "1 s"),
    (10, "10 s"),
    (60, "1 min"),
    (300, "5 min"),
    (1_800, "30 min"),
    (7_200, "2 h"),
    (28_800, "8 h"),
    (86_400, "1 day"),
    (345_600, "4 days"),
    (1_728_000, "20 days"),
    (8_640_000, "100 days"),
)
#: Policies whose colours never change, whatever other policies are plotted.
_FIXED: Final = {"fuga": 0, "best_fit_drfh": 1, "first_fit": 2, "slots": 3}


class Palette:
    """Colours and dashes of a report's variants, by name: the same in every plot."""

    def __init__(self, variants: Sequence[tuple[str, str]]) -> None:
        """Choose colours and dashes for pairs of variant and policy."""
        self._of: dict[str, tuple[str, int]] = {}
        colour_of: dict[str, int] = {}
        policies = list(dict.fromkeys(policy for _, policy in variants))
        for policy in policies:
            if policy in _FIXED:
                colour_of[policy] = _FIXED[policy]
        for policy in policies:
            free = (n for n in range(100) if n not in colour_of.values())
            colour_of.setdefault(policy, next(free))
        seen: dict[str, int] = {}
        for variant, policy in variants:
            turn = seen.setdefault(policy, 0)
            seen[policy] += 1
            number = colour_of[policy]
            stroke = (turn + number // len(_COLOURS)) % len(_DASHES)
            self._of[variant] = _COLOURS[number % len(_COLOURS)], stroke

    def line(self, variant: str) -> dict[str, Any]:
        """Return the style of a variant's lines in plots."""
        colour, stroke = self._of[variant]
        dash = _DASHES[stroke]
        return {"color": colour, "linestyle": dash, "linewidth": 1.6, "label": variant}

    def bar(self, variant: str) -> dict[str, Any]:
        """Return the style of a variant's bars in plots, with hatches in place of dashes."""
        colour, stroke = self._of[variant]
        style = {"color": colour, "edgecolor": "white", "linewidth": 0.0, "label": variant}
        return style | {"hatch": _HATCHES[stroke]}

    def swatch(self, variant: str) -> str:
        """Return the CSS of the line sample next to a variant's name."""
        colour, stroke = self._of[variant]
        return f"border-top: 3px {_BORDERS[stroke]} {colour}"

    def colour(self, variant: str) -> str:
        """Return the colour of a variant in plots."""
        return self._of[variant][0]


def new_figure(width: float = 7.2, height: float = 3.2, rows: int = 1) -> tuple[Any, Any]:
    """Return a plot's figure and its axes, without a display."""
    from matplotlib import rcParams  # noqa: PLC0415 - slow to import
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    rcParams.update({"svg.hashsalt": "fuga", "svg.fonttype": "path", "font.size": 9})
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, 1, sharex=True, squeeze=False)[:, 0]
    for axis in axes:
        axis.grid(color="#dddddd", linewidth=0.6)
        axis.set_axisbelow(True)
        for side in ("top", "right"):
            axis.spines[side].set_visible(False)
    return figure, axes


def draw_legend(figure: Any, axis: Any) -> None:
    """Draw the legend of a plot above it, where it hides no line."""
    handles, names = axis.get_legend_handles_labels()
    maximum = max(1, _LEGEND_WIDTH // (max(map(len, names), default=0) + 8))
    rows = -(-len(names) // maximum) or 1
    columns = -(-len(names) // rows) or 1
    figure.legend(
        handles, names, loc="outside upper left", ncols=columns, frameon=False, fontsize=8
    )


def time_unit(span_s: float) -> tuple[float, str]:
    """Return the unit of a plot's time axis for a span: its seconds, and its name."""
    for unit, seconds in (("days", 86_400.0), ("hours", 3_600.0), ("minutes", 60.0)):
        if span_s >= 3 * seconds:
            return seconds, unit
    return 1.0, "s"


def set_duration_axis(axis: Any, longest_s: float, shortest_s: float) -> None:
    """Scale a plot's x axis for durations, linear to ``shortest_s``, logarithmic beyond."""
    shortest_s = max(1.0, shortest_s)
    axis.set_xscale("symlog", linthresh=shortest_s)
    axis.set_xlim(0, longest_s)
    named = [(at, name) for at, name in _DURATIONS if not at or shortest_s <= at <= longest_s]
    axis.set_xticks([at for at, _ in named], [name for _, name in named])
    axis.minorticks_off()


def format_count_axis(axis: Any) -> None:
    """Format the counts on a plot's axis with a comma between thousands."""
    axis.set_major_formatter("{x:,.0f}")
    axis.get_major_locator().set_params(integer=True)
