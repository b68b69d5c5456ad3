"""The page of reproduced items, as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from simulation.reproduction.model import Paper

_HEAD: Final = """\
# Reproduction

Tables and figures of the papers, computed by the mechanisms, policies and the simulator of this
repository, next to what the papers print. This page is written by the command that computes them:

```console
{command}
```

`fuga reproduce --list` names them all; `fuga reproduce NAME` runs one. Data (CSV), plot (SVG, PNG)
and verdict (JSON) of each are in a folder of its name.

A figure **agrees** when every number is as near to the paper's as was set beforehand, and all that
the paper says of the figure holds; it **agrees in direction** when all that is said holds but a
number is further off, or no number of the paper is at hand; else it **differs**. It is **not
reproduced** where the paper compares with something that is not at hand. Worked examples, which
nothing excuses, are marked exact: if one of them is off, the command ends with status 1.

Tolerances of numbers were set before anything was run, but for the numbers of `fuga-fig6`,
`drfh-table2` and `drfh-fig8`, which were added later with the tolerance of `fuga-fig5a`. Settings
that the papers omit were chosen with first runs at hand: how loaded the day of DRFH's traces
is and how long its slots are, that no hosts are held back (`patience` 0) in `fuga-fig5a`,
`fuga-fig5b` and `fuga-fig7`, and that use is compared in the slots in which VMs wait under every
policy (`drfh-fig6`). None of these turned a figure that differs into one that agrees.

The FUGA paper runs each experiment ten times. Numbers of `fuga-fig5a`, `fuga-fig5b` and `fuga-fig6`
are means of ten runs with their 95 % confidence interval (±), the lowest and the highest; such a
number agrees only if its whole interval does. Every other figure is one run (`--seed 0`).

What shows inputs alone, as Google's table of servers or Fig. 4 of FUGA (what services require), has
no item. Where a figure shows the setting of an example, its item computes what the text says of it.
"""

#: Smaller numbers are rounding, which differs from machine to machine.
_ROUNDING: Final = 1e-9

_SYSTEM: Final = (
    (
        "what the register center holds of a host",
        "its MAC and IP addresses",
        "the same as its libvirt lists them and its name resolves, and its URI",
    ),
    (
        "states of a host",
        "*starting* in addition to up and down",
        "the same (enrolling until its first report), and unreachable between them",
    ),
    (
        "what users pay for",
        "the time for which they hold resources",
        "nothing: there is no account of use",
    ),
    (
        "how many VMs a job gets",
        "the provider decides",
        "the request says: a fixed count, or a least count to begin with",
    ),
    (
        "jobs with preferences for machines, and with priorities",
        "future work",
        "both: `fuga request --prefer` and `--priority`",
    ),
    ("a federation of providers", "future work", "none"),
)


def reproduction_page(items: Sequence[Mapping[str, Any]], command: Sequence[str]) -> str:
    """Return the page that reports the verdicts of reproduced items, as Markdown."""
    parts = [_HEAD.format(command=f"$ {' '.join(command)}"), _overview_section(items)]
    for paper, theirs in groupby(items, key=lambda item: item["paper"]):
        parts.append(f"## {Paper(paper).name.replace('PSDSF', 'PS-DSF')}\n\n{paper}.")
        parts += [_item_section(item) for item in theirs]
    if any(item["paper"] == Paper.FUGA for item in items):
        parts.append(system_section())
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def system_section() -> str:
    """Return the page's section on how the FUGA paper's system differs from this one."""
    return (
        "## The system of the FUGA paper\n\n"
        "The paper describes a system, too. This repository has parts of it otherwise, and lacks "
        "others:\n\n" + _markdown_table(("", "the paper", "here"), _SYSTEM)
    )


def _overview_section(items: Sequence[Mapping[str, Any]]) -> str:
    """Return the page's table of all reproduced items and their verdicts."""
    rows = []
    for item in items:
        near = sum(each["agrees"] for each in item["numbers"])
        held = sum(each["holds"] for each in item["statements"])
        rows.append(
            (
                f"[`{item['name']}`](#{item['name']})",
                item["shows"],
                item["verdict"],
                f"{near} of {len(item['numbers'])}" if item["numbers"] else "–",
                f"{held} of {len(item['statements'])}" if item["statements"] else "–",
            )
        )
    return _markdown_table(
        ("item", "what it shows", "verdict", "numbers near", "statements held"), rows
    )


def _item_section(item: Mapping[str, Any]) -> str:
    """Return the page's section on one reproduced item: its numbers and statements."""
    parts = [
        f"### {item['name']}",
        f"{item['place']}: {item['shows']}. Verdict: **{item['verdict']}**.",
    ]
    if item["instead"]:
        parts.append(f"Instead of inputs that are not public: {item['instead']}.")
    if item["timed"]:
        parts.append("Times are of the machine that this was run on.")
    if item["numbers"]:
        parts.append(
            _markdown_table(
                ("number", "paper", "ours", "difference", "within", ""),
                [
                    (
                        f"{each['what']}{_format_unit(each['unit'])}",
                        _format_number(each["paper"]),
                        _format_ours(each),
                        _format_number(each["difference"], signed=True),
                        _format_number(each["within"]),
                        _agreement_mark(each),
                    )
                    for each in item["numbers"]
                ],
            )
        )
    if item["statements"]:
        parts.append(
            "\n".join(
                f"- {'Holds' if each['holds'] else 'Does not hold'}: {each['says']}. "
                f"Ours: {each['found']}."
                for each in item["statements"]
            )
        )
    if item["comparisons"]:
        parts.append("Shown and not judged, since the two are of different things:")
        parts.append(
            _markdown_table(
                ("", "paper", "ours"),
                [(each["what"], each["paper"], each["ours"]) for each in item["comparisons"]],
            )
        )
    if item["note"]:
        parts.append(item["note"])
    if item["why"]:
        parts.append(f"Why: {item['why']}")
    return "\n\n".join(parts)


def _format_ours(number: Mapping[str, Any]) -> str:
    """Return our number of an item; for several runs, with confidence interval and extremes."""
    ours, runs = _format_number(number["ours"]), number["runs"]
    if not runs:
        return ours
    extremes = f"{_format_number(min(runs))} to {_format_number(max(runs))}"
    half = number["plus_minus"]
    return f"{ours} ± {half if half > _ROUNDING else 0:.2g} ({extremes} in {len(runs)} runs)"


def _agreement_mark(number: Mapping[str, Any]) -> str:
    """Return whether our number agrees with the paper's, in words."""
    agrees = "agrees" if number["agrees"] else "**differs**"
    return f"exact, {agrees}" if number["exact"] else agrees


def _format_unit(unit: str) -> str:
    """Return a number's unit in parentheses; "" for none."""
    return f" ({unit})" if unit else ""


def _format_number(value: float, *, signed: bool = False) -> str:
    """Return a number with four significant digits, or whole if it is large."""
    if abs(value) < _ROUNDING:
        return "0"
    text = f"{value:.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
    return f"+{text}" if signed and value > 0 else text


def _markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
