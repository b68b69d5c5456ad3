"""Plots of reproduced figures: bars of shares, and lines over time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from simulation.report.plot_style import Palette, new_figure
from simulation.report.plots import Plot

Line = tuple[npt.ArrayLike, npt.ArrayLike]

#: Of an axis over the largest value.
_HEADROOM: Final = 1.05


def bar_plotter(
    title: str,
    reading: str,
    groups: Sequence[str],
    series: Mapping[str, Sequence[float]],
    *,
    over: str,
    unit: str,
) -> Callable[[], Plot]:
    """Return a function that draws a reproduced figure of bars, each series in every group."""

    def draw() -> Plot:
        """Draw the bars of the reproduced figure."""
        figure, (axis,) = new_figure()
        palette = Palette([(name, name) for name in series])
        width = 0.8 / len(series)
        at = np.arange(len(groups), dtype=np.float64)
        for place, (name, values) in enumerate(series.items()):
            axis.bar(
                at + place * width, values, width=width, color=palette.colour(name), label=name
            )
        axis.set_xticks(at + 0.4 - width / 2, groups)
        axis.set_xlabel(over)
        axis.set_ylabel(unit)
        _draw_legend(axis, len(series))
        return Plot("plot", title, reading, figure)

    return draw


def line_plotter(
    title: str,
    reading: str,
    panels: Mapping[str, Mapping[str, Line]],
    *,
    over: str,
    steps: bool = False,
    marks: bool = False,
    logarithmic: bool = False,
) -> Callable[[], Plot]:
    """Return a function that draws a reproduced figure of panels of lines.

    The name of a panel is the label of its axis, with the unit.
    """

    def draw() -> Plot:
        """Draw the lines of the reproduced figure."""
        figure, axes = new_figure(height=0.8 + 2.3 * len(panels), rows=len(panels))
        names = dict.fromkeys(name for panel in panels.values() for name in panel)
        palette = Palette([(name, name) for name in names])
        for axis, (unit, panel) in zip(axes, panels.items(), strict=True):
            for place, (name, (x, y)) in enumerate(panel.items()):
                style = palette.line(name)
                if steps:  # lines that lie on each other: the first ones show behind the last
                    width = 1.5 + 0.8 * (len(panel) - 1 - place)
                    style |= {"drawstyle": "steps-post", "linewidth": width}
                axis.plot(x, y, **style, marker="o" if marks else None)
            axis.set_ylabel(unit)
            if logarithmic:
                axis.set_xscale("log")
                axis.set_yscale("log")
            else:
                axis.set_ylim(0, _HEADROOM * max(float(np.max(y)) for _, y in panel.values()))
            _draw_legend(axis, len(panel))
        axes[-1].set_xlabel(over)
        return Plot("plot", title, reading, figure)

    return draw


def _draw_legend(axis: Any, names: int) -> None:
    """Draw the legend of a reproduced figure above the axis, where it hides no line."""
    axis.legend(
        frameon=False,
        fontsize=8,
        ncols=min(names, 6),
        loc="lower left",
        bbox_to_anchor=(0.0, 1.0),
        borderaxespad=0.2,
    )
