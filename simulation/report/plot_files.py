"""Write plots as reproducible files: equal numbers give equal bytes."""

from __future__ import annotations

import io
import re
from pathlib import Path

from simulation.report.plots import Plot


def file_name(plot: Plot) -> str:
    """Return the name of a plot's files, without the ending."""
    return re.sub(r"[^\w.-]", "_", plot.name)


def save_plot(plot: Plot, folder: Path) -> str:
    """Write a plot as SVG and PNG into a folder; return the SVG."""
    folder.mkdir(parents=True, exist_ok=True)
    name = file_name(plot)
    buffer = io.StringIO()
    plot.figure.savefig(buffer, format="svg", metadata={"Date": None})
    svg = buffer.getvalue()
    (folder / f"{name}.svg").write_text(svg, encoding="utf-8")
    plot.figure.set_layout_engine(None)  # all has its place, in parts of the figure
    plot.figure.savefig(folder / f"{name}.png", dpi=150, metadata={"Software": None})
    return svg
