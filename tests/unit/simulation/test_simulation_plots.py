"""Plots say what they show, in units, and in the same colours everywhere."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from simulation import RunSpec, TraceSpec, simulate
from simulation.experiments.variant_comparison import compare_variants, unchanged_variant
from simulation.report.plot_style import Palette, draw_legend, new_figure, set_duration_axis
from simulation.report.plots import build_plots
from simulation.report.run_data import RunData


@pytest.mark.parametrize("as_csv", [False, True])
def test_every_axis_has_a_unit(tmp_path: Path, as_csv: bool) -> None:
    rows = "".join(f"{9 * n},{60 * (1 + n % 5)},t{n % 3},{1 + n % 3}\n" for n in range(60))
    trace = tmp_path / "trace.csv"
    trace.write_text(f"arrival_s,lifetime_s,tenant,vcpus\n{rows}")
    spec = RunSpec(name="first_fit-seed0", trace=TraceSpec(path=str(trace)), hosts="2:6c")
    spec = replace(spec, policy="first_fit", ideal_every=1)
    run = RunData(tmp_path / "out", simulate(spec, tmp_path / "out", as_csv=as_csv))

    plots = build_plots([run], Palette([("first_fit", "first_fit")]))

    assert len(plots) == 10
    for plot in plots:
        assert plot.title
        assert plot.reading.endswith(".")
        for axis in plot.figure.axes:
            labels = [axis.get_ylabel()] if axis.get_label() == "<colorbar>" else []
            labels = labels or [axis.get_ylabel(), axis.get_xlabel() or "(shared)"]
            for label in labels:
                assert "(" in label or label == "reason", (plot.name, label)


def test_a_policy_has_one_colour_whoever_else_takes_part() -> None:
    alone = Palette([("fuga", "fuga")])
    many = Palette([(name, name) for name in ("tsf_fit", "slots", "fuga", "best_fit")])
    swept = Palette([("fuga-eta3", "fuga"), ("fuga-eta5", "fuga"), ("slots", "slots")])

    assert alone.colour("fuga") == many.colour("fuga") == swept.colour("fuga-eta3")
    assert many.colour("slots") == swept.colour("slots")
    assert len({many.colour(name) for name in ("tsf_fit", "slots", "fuga", "best_fit")}) == 4
    assert swept.line("fuga-eta3")["linestyle"] != swept.line("fuga-eta5")["linestyle"]
    assert swept.bar("fuga-eta3")["hatch"] != swept.bar("fuga-eta5")["hatch"]
    assert swept.swatch("fuga-eta3") != swept.swatch("fuga-eta5")


def test_what_is_changed_is_compared_with_the_same_unchanged() -> None:
    shown = [
        ("fuga-unchanged", 1.0),
        ("fuga-changed", 2.0),
        ("slots-unchanged", 5.0),
        ("slots-changed", 9.0),
    ]
    runs = [
        {"name": f"{name}-seed0", "policy": name, "seed": 0, "wait_s": {"mean": wait}}
        for name, wait in shown
    ]

    found = compare_variants(runs)

    assert [row["base"] for row in found["variants"]] == [
        None,
        "fuga-unchanged",
        "fuga-unchanged",
        "slots-unchanged",
    ]
    waits = [row["measures"]["wait_s.mean"] for row in found["variants"]]
    gaps = [wait["difference"]["mean"] for wait in waits[1:]]
    assert gaps == [1.0, 4.0, 4.0]
    assert unchanged_variant("slots-changed") == "slots-unchanged"
    assert unchanged_variant("slots") is None


def test_a_legend_names_every_line_above_the_plot() -> None:
    figure, (axis,) = new_figure()
    for name in ("one-unchanged" * 3, "one-changed" * 3, "two"):
        axis.plot([0, 1], label=name)

    draw_legend(figure, axis)

    (found,) = figure.legends
    assert [text.get_text() for text in found.get_texts()] == [
        "one-unchanged" * 3,
        "one-changed" * 3,
        "two",
    ]
    figure.canvas.draw()
    assert found.get_window_extent().y0 >= axis.get_window_extent().y1


@pytest.mark.parametrize(
    ("longest_s", "shortest_s", "names"),
    [
        (10, 0.5, ["0", "1 s", "10 s"]),
        (90_000, 300, ["0", "5 min", "30 min", "2 h", "8 h", "1 day"]),
        (1e7, 86_400, ["0", "1 day", "4 days", "20 days", "100 days"]),
    ],
)
def test_an_axis_of_durations_names_those_within_it(
    longest_s: float, shortest_s: float, names: list[str]
) -> None:
    _, (axis,) = new_figure()

    set_duration_axis(axis, longest_s, shortest_s)

    assert [tick.get_text() for tick in axis.get_xticklabels()] == names
    assert axis.get_xlim() == (0, longest_s)
