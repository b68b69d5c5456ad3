"""Write the report as one self-contained HTML file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final

from plain_text import plain
from simulation.report.comparison_table import comparison_section
from simulation.report.plot_files import file_name, save_plot
from simulation.report.plot_style import Palette
from simulation.report.plots import Plot, build_plots
from simulation.report.run_data import first_seed_runs, runs_in

REPORT: Final = "report.html"
_PLOTS: Final = "plots"

_STYLE: Final = """
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, sans-serif; color: #1a1a1a; background: #fff;
       max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.7rem; margin-bottom: .2rem; } h2 { font-size: 1.25rem; margin-top: 2.2rem; }
h3 { font-size: 1.05rem; margin-bottom: .2rem; }
p.lead, p.reading { color: #444; margin: .2rem 0 .6rem; max-width: 46rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .88rem; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .5rem; border-bottom: 1px solid #ddd; text-align: right;
         vertical-align: top; white-space: nowrap; }
thead th { white-space: normal; }
table.dense { font-size: .78rem; } table.dense td, table.dense th { padding: .3rem .35rem; }
th:first-child, td:first-child { text-align: left; position: sticky; left: 0; background: #fff; }
thead th { border-bottom: 2px solid #888; }
small { color: #555; display: block; font-weight: 400; }
.best { font-weight: 700; }
.swatch { display: inline-block; width: 1.8em; margin-right: .4em; vertical-align: middle; }
#runs td:first-child { white-space: normal; min-width: 9rem; }
figure { margin: 0 0 1.5rem; } figure svg { width: 100%; height: auto; display: block; }
code, pre { font-size: .85rem; background: #f4f4f4; padding: .1rem .3rem; }
pre { padding: .6rem; white-space: pre-wrap; overflow-wrap: anywhere; }
@media print {
  body { max-width: none; margin: 0; font-size: 10pt; } .scroll { overflow: visible; }
  section.plot, table { break-inside: avoid; } h2, h3 { break-after: avoid; }
  table { font-size: 7.5pt; } th, td { padding: .15rem .35rem; }
}
"""


def write_report(folder: Path, document: Mapping[str, Any]) -> Path:
    """Write the report of a study: ``report.html``, and its plots as SVG and PNG.

    Parameters
    ----------
    document : mapping
        The summary of the study, as `simulation.experiments.study.write_summary` returns it.
    """
    runs = [run for run in runs_in(folder, document["runs"]) if run.summary["slots"]]
    shown = first_seed_runs(runs)
    variants = [(row["variant"], row["policy"]) for row in document["comparison"]["variants"]]
    palette = Palette(variants)
    plots = build_plots(shown, palette) if shown else []
    sections = [_plot_section(plot, folder / _PLOTS) for plot in plots]
    compared = comparison_section(document["comparison"], palette)
    body = [
        _head_section(document),
        compared,
        _runs_section(document["runs"]),
        _moves_section(document["runs"]),
    ]
    if sections:
        body.append(_plots_introduction(document["comparison"]))
    body += [*sections, _bad_rows_section(document["runs"]), _inputs_section(document)]
    path = folder / REPORT
    path.write_text(
        "<!doctype html>\n"
        '<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>fuga simulate</title><style>{_STYLE}</style></head>\n"
        f"<body>{''.join(body)}</body></html>\n",
        encoding="utf-8",
    )
    return path


def _head_section(document: Mapping[str, Any]) -> str:
    """Return the report's head: what was simulated, and whether it came to its end."""
    runs = document["runs"]
    if not runs:
        return '<h1>Simulation</h1><p class="lead">Stopped before any run had begun.</p>'
    first = runs[0]
    stopped = "" if document["finished"] else " <strong>Stopped before its end.</strong>"
    hosts = sorted({run["hosts"] for run in runs})
    hosts_sentence = f"{hosts[0]:,}" if len(hosts) == 1 else f"{hosts[0]:,} to {hosts[-1]:,}"
    return (
        "<h1>Simulation</h1>"
        f'<p class="lead">{len(runs)} {"run" if len(runs) == 1 else "runs"} on '
        f"{hosts_sentence} hosts; in the first, {first['requests']:,} requests for "
        f"{first['vms']['asked']:,} VMs in {first['slots']:,} slots.{stopped}</p>"
    )


def _runs_section(runs: Sequence[Mapping[str, Any]]) -> str:
    """Return the report's table of runs: VMs requested, placed, completed and lost."""
    columns = ("asked", "placed", "completed", "running", "waiting", "lost", "given_up")
    heads = ("requested", *columns[1:])
    head = "".join(f"<th>{name.replace('_', ' ')}</th>" for name in heads)
    lines = []
    for run in runs:
        name = escape(str(run["name"]))
        cells = "".join(
            f'<td data-run="{name}" data-path="vms.{column}" data-value="{run["vms"][column]}">'
            f"{run['vms'][column]:,}</td>"
            for column in columns
        )
        lines.append(
            f"<tr><td>{name}{'' if run['finished'] else ' (stopped)'}</td>{cells}"
            f"<td>{run['rounds']:,} of {run['slots']:,}</td><td>{run['fallbacks']:,}</td>"
            f"<td>{run['timing']['processor_seconds']:,.1f} s</td></tr>"
        )
    return (
        "<h2>Every run</h2>"
        '<p class="reading">Numbers of VMs at the end; a VM that was lost with its host counts '
        "again when it is placed again. Slots in which nothing changed have no round; a fallback "
        "is a round that its policy could not decide.</p>"
        f'<div class="scroll"><table id="runs"><thead><tr><th>run</th>{head}'
        "<th>rounds</th><th>fallbacks</th><th>processor time</th></tr></thead>"
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )


def _moves_section(runs: Sequence[Mapping[str, Any]]) -> str:
    """Return the report's section about moves: transfer, reasons, and hosts that rolls skipped."""
    moving = [run for run in runs if run["moves"] is not None]
    if not moving:
        return ""
    lines, rolls = [], []
    for run in moving:
        moves, name = run["moves"], escape(str(run["name"]))
        causes = moves["by_reason"].items()
        reasons = escape(", ".join(f"{count:,} {why}" for why, count in causes if count)) or "–"
        failed = sum(count for name_, count in moves["outcomes"].items() if name_ != "moved")
        spare = moves["spare"]
        held = "–" if spare is None else f"{spare['asked'] - spare['not_held']} of {spare['asked']}"
        lines.append(
            f'<tr><td>{name}</td><td data-run="{name}" data-path="moves.moved" '
            f'data-value="{moves["moved"]}">{moves["moved"]:,}</td><td>{reasons}</td>'
            f"<td>{failed:,}</td><td>{moves['moved_gib']:,.1f} GiB</td>"
            f"<td>{moves['move_seconds']:,.0f} s</td><td>{held}</td></tr>"
        )
        if moves["roll"] is not None:
            rolls.append(_roll_section(name, moves["roll"]))
    return (
        "<h2>Moves</h2>"
        '<p class="reading">Moves that were carried out, why, and those that came to nothing: '
        "the VM ended before, a round had taken the room, or a host failed. Spare: in how many "
        "of the slots checked every domain's VMs had room elsewhere.</p>"
        '<div class="scroll"><table id="moves"><thead><tr><th>run</th><th>moves</th><th>why</th>'
        "<th>to nothing</th><th>carried</th><th>time, added up</th><th>spare held</th></tr></thead>"
        f"<tbody>{''.join(lines)}</tbody></table></div>{''.join(rolls)}"
    )


def _roll_section(name: str, roll: Mapping[str, Any]) -> str:
    """Return the report's paragraph about one run's roll over hosts."""
    took = "has not come to its end" if roll["took_s"] is None else f"took {roll['took_s']:,.0f} s"
    left = "".join(
        f"<li>{escape(each['host'])}: {escape('; '.join(each['why']))}</li>"
        for each in roll["left_out"]
    )
    listed = f" Left out:</p><ul>{left}</ul>" if left else "</p>"
    return f"<p>The roll of {name} went through {roll['rolled']:,} hosts and {took}.{listed}"


def _plots_introduction(comparison: Mapping[str, Any]) -> str:
    """Return the report's words before the plots."""
    several = any(len(row["seeds"]) > 1 for row in comparison["variants"])
    seed = " Plots show the first seed of each." if several else ""
    return (
        '<h2>Over time, and by tenant</h2><p class="reading">A policy has the same colour in '
        f"every plot.{seed} Each plot is also in the folder <code>{_PLOTS}</code>, as SVG and "
        "PNG.</p>"
    )


def _plot_section(plot: Plot, folder: Path) -> str:
    """Return the report's section of one plot; the plot's files are written, too."""
    svg, name = save_plot(plot, folder), file_name(plot)
    inline = svg[svg.index("<svg") :].replace(
        "<svg ", f'<svg role="img" aria-label="{escape(plot.title)}" ', 1
    )
    return (
        f'<section class="plot" id="{escape(name)}"><h3>{escape(plot.title)}</h3>'
        f'<p class="reading">{escape(plot.reading)}</p><figure>{inline}</figure></section>'
    )


def _bad_rows_section(runs: Sequence[Mapping[str, Any]]) -> str:
    """Return the report's section about rows of the trace that were left out; "" for none."""
    bad = next((run["bad_rows"] for run in runs if run["bad_rows"]["count"]), None)
    if bad is None:
        return ""
    lines = escape("\n".join(plain(line) for line in bad["first"]))
    return (
        f"<h2>Bad rows</h2><p>{bad['count']:,} rows of the trace were left out, the first of "
        f"them:</p><pre>{lines}</pre>"
    )


def _inputs_section(document: Mapping[str, Any]) -> str:
    """Return the report's section that says how it was made."""
    command = escape(" ".join(document["command"]))
    version = escape(str(document["engine_version"]))
    return (
        f'<h2>How it was made</h2><p class="reading">By fuga {version}; the same command on the '
        "same files gives the same numbers, processor time aside.</p>"
        f"<pre>{command}</pre>"
    )
