"""The plots of a report, with a line that says how to read each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from simulation.metrics.summary import completed_fractions
from simulation.report.plot_series import cumulative_fractions, downsample_series
from simulation.report.plot_style import (
    Palette,
    draw_legend,
    format_count_axis,
    new_figure,
    set_duration_axis,
    time_unit,
)
from simulation.report.run_data import RunData

_MAX_TENANTS: Final = 6  #: whose shares are drawn
_MAX_ROWS: Final = 120  #: of a picture of hosts
_WHOLE: Final = 102  #: so much of percents is seen: lines at 100 % whole
_MAX_LINES: Final = 8  #: variants in one plot; the others are in the tables


@dataclass(frozen=True, slots=True)
class Plot:
    """A figure, its name as a file, and how to read it in one line."""

    name: str
    title: str
    reading: str
    figure: Any


def build_plots(runs: Sequence[RunData], palette: Palette) -> list[Plot]:
    """Return the plots of a report, one run for each variant; empty plots are left out."""
    shown = list(runs)[:_MAX_LINES]
    makers: tuple[Callable[[Sequence[RunData], Palette], Plot | None], ...] = (
        _use_plot,
        _waiting_plot,
        _waits_plot,
        _completions_plot,
        _completed_fractions_plot,
        _fairness_plot,
        _left_out_plot,
        _fragmentation_plot,
        _moves_plot,
    )
    plots = [make(shown, palette) for make in makers]
    largest = _largest_tenants(shown)
    plots += [_shares_plot(run, number, largest) for number, run in enumerate(shown[:4])]
    plots += [_hosts_plot(run, number) for number, run in enumerate(shown[:4])]
    return [plot for plot in plots if plot is not None]


def _times_of_slots(run: RunData) -> tuple[Any, str]:
    """Return the times of a run's slots for a plot's axis, and the label of the axis."""
    starts = run.slots["start_s"]
    unit_s, unit = time_unit(float(starts[-1] - starts[0]) if len(starts) else 0.0)
    return (starts - starts[0]) / unit_s, f"time since the first slot ({unit})"


def _draw_over_time(
    runs: Sequence[RunData], palette: Palette, column: str, axis: Any, factor: float = 1.0
) -> str:
    """Draw a column of the slots in a plot over time, a line for each run.

    Returns the label of the time axis.
    """
    label = ""
    for run in runs:
        times, label = _times_of_slots(run)
        if column in run.slots:
            axis.plot(
                *downsample_series(times, run.slots[column] * factor), **palette.line(run.variant)
            )
    return label


def _use_plot(runs: Sequence[RunData], palette: Palette) -> Plot:
    """Return the plot of resources in use over time."""
    resources = list(runs[0].summary["used"])[:3]
    figure, axes = new_figure(height=1.4 + 1.7 * len(resources), rows=len(resources))
    for axis, resource in zip(axes, resources, strict=True):
        label = _draw_over_time(runs, palette, f"used:{resource}", axis, 100.0)
        axis.set_ylabel(f"{resource} in use (%)")
        axis.set_ylim(0, _WHOLE)
    axes[-1].set_xlabel(label)
    draw_legend(figure, axes[0])
    return Plot(
        "utilisation",
        "What is in use",
        "Parts of what the hosts of each run offer. Higher is better while VMs wait; on the same "
        "hosts lines that lie on each other below 100 % say that there was room for everything.",
        figure,
    )


def _waiting_plot(runs: Sequence[RunData], palette: Palette) -> Plot:
    """Return the plot of waiting VMs over time."""
    figure, (axis,) = new_figure()
    label = _draw_over_time(runs, palette, "vms_waiting", axis)
    axis.set_ylabel("VMs waiting (number)")
    format_count_axis(axis.yaxis)
    axis.set_xlabel(label)
    axis.set_ylim(bottom=0)
    draw_legend(figure, axis)
    return Plot(
        "waiting",
        "Who waits",
        "VMs that a slot left for the next one; a line that keeps rising says that the hosts are "
        "too few.",
        figure,
    )


def _waits_plot(runs: Sequence[RunData], palette: Palette) -> Plot | None:
    """Return the plot of how long VMs waited, as cumulative fractions; None if none waited."""
    figure, (axis,) = new_figure()
    longest = 0.0
    for run in runs:
        placements = run.table("placements", "arrival_s", "start_s", "count")
        waits = placements["start_s"] - placements["arrival_s"]
        if len(waits):
            values, parts = cumulative_fractions(waits, placements["count"])
            longest = max(longest, float(values[-1]))
            axis.step(values, 100 * parts, where="post", **palette.line(run.variant))
    if not longest:
        return None
    set_duration_axis(axis, longest, runs[0].summary["slot_length_s"])
    axis.set_ylim(0, _WHOLE)
    axis.set_xlabel(
        "wait from arrival to the start of the slot that placed the VM (logarithmic, s to days)"
    )
    axis.set_ylabel("VMs placed (%)")
    draw_legend(figure, axis)
    return Plot(
        "waits",
        "How long VMs waited",
        "The further left and up a line, the sooner VMs were placed; VMs that still wait are not "
        "in it.",
        figure,
    )


def _completions_plot(runs: Sequence[RunData], palette: Palette) -> Plot | None:
    """Return the plot of times from request to end of VMs; None if none completed."""
    figure, (axis,) = new_figure()
    longest = 0.0
    for run in runs:
        placements = run.table("placements", "arrival_s", "end_s", "count")
        done = placements["end_s"] <= run.summary["to_s"]
        if done.any():
            took = placements["end_s"][done] - placements["arrival_s"][done]
            values, parts = cumulative_fractions(took, placements["count"][done])
            axis.step(values, 100 * parts, where="post", **palette.line(run.variant))
            longest = max(longest, float(values[-1]))
    if not longest:
        return None
    set_duration_axis(axis, longest, 60.0)
    axis.set_ylim(0, _WHOLE)
    axis.set_xlabel("time from arrival to end (logarithmic, s to days)")
    axis.set_ylabel("VMs that ended (%)")
    draw_legend(figure, axis)
    return Plot(
        "completions",
        "How long VMs took from arrival to end",
        "Lives and waits together, of VMs that ended: lines differ where VMs waited longer, or "
        "where others came to their end.",
        figure,
    )


def _completed_fractions_plot(runs: Sequence[RunData], palette: Palette) -> Plot | None:
    """Return the plot of the part of its VMs that each tenant completed."""
    figure, (axis,) = new_figure()
    for run in runs:
        tenants = run.table("tenants")
        parts = completed_fractions(tenants["vms_asked"], tenants["vms_completed"])
        known = np.sort(parts[np.isfinite(parts)])
        if len(known):
            ranks = 100 * np.arange(1, len(known) + 1) / len(known)
            axis.step(ranks, 100 * known, where="mid", **palette.line(run.variant))
    axis.set_xlabel("tenants, those of the smallest part first (%)")
    axis.set_ylabel("VMs completed (% of those requested)")
    axis.set_ylim(0, _WHOLE)
    axis.set_xlim(0, 100)
    draw_legend(figure, axis)
    return Plot(
        "completed",
        "How much of each tenant's requests was completed",
        "A line that starts low on the left leaves some tenants with little while others have "
        "all; VMs that run on are not completed.",
        figure,
    )


def _fairness_plot(runs: Sequence[RunData], palette: Palette) -> Plot | None:
    """Return the plot of the distance from fair shares over time; None if it was not measured."""
    if not any(np.isfinite(run.slots.get("fair_distance", np.zeros(0))).any() for run in runs):
        return None
    figure, (axis,) = new_figure()
    label = _draw_over_time(runs, palette, "fair_distance", axis, 100.0)
    axis.set_xlabel(label)
    axis.set_ylabel("distance from fair shares\n(% of the mean fair share)")
    axis.set_ylim(bottom=0)
    draw_legend(figure, axis)
    return Plot(
        "fairness",
        "How far shares are from fair ones",
        "0 % is weighted DRF on the pool, given what each policy has placed before; lower is "
        "fairer.",
        figure,
    )


def _left_out_plot(runs: Sequence[RunData], palette: Palette) -> Plot | None:
    """Return the plot of reasons for which VMs were left out; None if none were."""
    reasons = sorted({reason for run in runs for reason in run.summary["left_out"]})
    if not reasons:
        return None
    figure, (axis,) = new_figure(height=1.2 + 0.3 * len(reasons) * max(len(runs), 2) / 2)
    width = 0.8 / len(runs)
    for place, run in enumerate(runs):
        counts = [run.summary["left_out"].get(reason, 0) for reason in reasons]
        at = np.arange(len(reasons)) + place * width
        axis.barh(at, counts, height=width, **palette.bar(run.variant))
    axis.set_yticks(np.arange(len(reasons)) + 0.4 - width / 2, reasons)
    axis.invert_yaxis()
    axis.set_xlabel("VMs left out, counted in every round that did so (number)")
    format_count_axis(axis.xaxis)
    axis.set_ylabel("reason")
    draw_legend(figure, axis)
    return Plot(
        "left_out",
        "Why VMs were left out",
        "One VM that waits ten rounds counts ten times: long bars mean many VMs or long waits.",
        figure,
    )


def _fragmentation_plot(runs: Sequence[RunData], palette: Palette) -> Plot:
    """Return the plot of free room that is too small for a VM, over time."""
    figure, (axis,) = new_figure()
    label = _draw_over_time(runs, palette, "fragmentation", axis, 100.0)
    axis.set_xlabel(label)
    axis.set_ylabel("free, but too little for a VM\n(% of what is free)")
    axis.set_ylim(0, _WHOLE)
    draw_legend(figure, axis)
    return Plot(
        "fragmentation",
        "What is free and of no use",
        "The part of the free first resource on hosts too full for a VM, in the mean of those "
        "requested; lower leaves more choice.",
        figure,
    )


def _moves_plot(runs: Sequence[RunData], palette: Palette) -> Plot | None:
    """Return the plot of load deviation and moved memory over time; None without moves."""
    if not any("moved_gib" in run.slots for run in runs):
        return None
    figure, (level, moved) = new_figure(height=4.6, rows=2)
    _draw_over_time(runs, palette, "load_deviation", level, 100.0)
    level.set_ylabel("load of hosts off\ntheir mean (%)")
    level.set_ylim(bottom=0)
    for run in runs:
        times, label = _times_of_slots(run)
        if "moved_gib" in run.slots:
            gib = np.cumsum(np.nan_to_num(run.slots["moved_gib"]))
            moved.plot(*downsample_series(times, gib), **palette.line(run.variant))
        moved.set_xlabel(label)
    moved.set_ylabel("moved so far (GiB)")
    moved.set_ylim(bottom=0)
    draw_legend(figure, level)
    return Plot(
        "moves",
        "How level hosts are, and what that took",
        "Above the standard deviation of the load over hosts, of CPU and memory added; below what "
        "all moves carried so far.",
        figure,
    )


def _largest_tenants(runs: Sequence[RunData]) -> list[str]:
    """Return the tenants with the largest shares over all runs, which all plots show."""
    totals: Counter[str] = Counter()
    for run in runs:
        shares = run.table("shares")
        tenants, place = np.unique(shares["tenant"].astype(str), return_inverse=True)
        held = np.bincount(place.ravel(), shares["dominant_share"], len(tenants))
        totals.update(dict(zip(tenants.tolist(), held.tolist(), strict=True)))
    return [tenant for tenant, _ in totals.most_common(_MAX_TENANTS)]


def _shares_plot(run: RunData, number: int, largest: Sequence[str]) -> Plot | None:
    """Return the plot of the largest tenants' shares over time in one run."""
    if not largest:
        return None
    shares = run.table("shares")
    figure, (axis,) = new_figure()
    times, label = _times_of_slots(run)
    first, decided = int(run.slots["slot"][0]), run.slots["round"] > 0
    palette = Palette([(tenant, tenant) for tenant in largest])
    for tenant in largest:
        its = shares["tenant"].astype(str) == tenant
        values = np.zeros(len(times))
        values[shares["slot"][its].astype(np.int64) - first] = 100 * shares["dominant_share"][its]
        axis.plot(*downsample_series(times[decided], values[decided]), **palette.line(tenant))
    axis.set_xlabel(label)
    axis.set_ylabel("dominant share (% of the pool)")
    axis.set_ylim(bottom=0)
    draw_legend(figure, axis)
    return Plot(
        f"shares_{number}_{run.variant}",
        f"Dominant shares of {len(largest)} large tenants under {run.variant}",
        "Tenants that request more than their part should lie together where VMs wait; one that "
        "requests less lies below. Here colours are of tenants.",
        figure,
    )


def _hosts_plot(run: RunData, number: int) -> Plot | None:
    """Return the plot of the use of each host over time in one run; None without data."""
    hosts = run.table("hosts")
    if not len(hosts["slot"]):
        return None
    slots, column = np.unique(hosts["slot"], return_inverse=True)
    names, row = np.unique(hosts["host"].astype(str), return_inverse=True)
    rows = min(len(names), _MAX_ROWS)
    row = row.ravel() * rows // len(names)
    total, times = np.zeros((rows, len(slots))), np.zeros((rows, len(slots)))
    np.add.at(total, (row, column.ravel()), hosts["used_part"])
    np.add.at(times, (row, column.ravel()), 1)
    picture = 100 * np.divide(total, times, out=np.full_like(total, np.nan), where=times > 0)
    figure, (axis,) = new_figure(height=3.6)
    axis.grid(visible=False)
    length_s = run.summary["slot_length_s"]
    span_s = float(slots[-1] - slots[0] + 1) * length_s
    unit_s, unit = time_unit(span_s)
    image = axis.imshow(
        picture,
        aspect="auto",
        interpolation="nearest",
        cmap="cividis",
        vmin=0,
        vmax=100,
        extent=(0, span_s / unit_s, len(names), 0),
    )
    resource = next(iter(run.summary["used"]))
    figure.colorbar(image, label=f"{resource} in use (%)")
    axis.set_xlabel(f"time since the first slot ({unit})")
    axis.set_ylabel("hosts in order of name (number)")
    format_count_axis(axis.yaxis)
    return Plot(
        f"hosts_{number}_{run.variant}",
        f"Every host over time under {run.variant}",
        f"Each row is {'a host' if rows == len(names) else f'{len(names) / rows:.0f} hosts'}: "
        "yellow is full, dark blue empty; stripes show which hosts are filled first.",
        figure,
    )
